"""What a picture says, and whether it can be read: text that collides or is clipped, by the renderer's own boxes."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

SLACK = 1.0  # pixels that boxes may share: letters do not fill them


def texts(figure: Figure) -> list[Text]:
    """All text that a figure shows once it is drawn."""
    if not isinstance(figure.canvas, FigureCanvasAgg):
        FigureCanvasAgg(figure)
        figure.stale = True
    if figure.stale:
        figure.canvas.draw()
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    inside = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            outside = [tick for tick in ticks if not low - 1e-9 <= tick.get_loc() <= high + 1e-9]
            inside += [label for tick in outside for label in (tick.label1, tick.label2)]
    hidden = {id(label) for label in inside}
    return [text for text in shown if id(text) not in hidden]


def unreadable(figure: Figure) -> list[str]:
    """Text that leaves the figure, pairs that collide, and numbers along an axis that does not say what they are."""
    boxes = [(text.get_text(), text.get_window_extent(figure.canvas.get_renderer())) for text in texts(figure)]
    edge = figure.bbox
    found = [
        f"{said!r} leaves the figure"
        for said, box in boxes
        if box.x0 < edge.x0 - SLACK or box.x1 > edge.x1 + SLACK or box.y0 < edge.y0 - SLACK or box.y1 > edge.y1 + SLACK
    ]
    for (said, box), (other, its) in combinations(boxes, 2):
        wide = min(box.x1, its.x1) - max(box.x0, its.x0)
        high = min(box.y1, its.y1) - max(box.y0, its.y0)
        if wide > SLACK and high > SLACK:
            found.append(f"{said!r} collides with {other!r}")
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        numbers = [own.get_text() for own in axis.get_ticklabels() if own.get_text()[:1].isdigit()]
        if numbers and not axis.get_label_text():
            found.append(f"numbers of no name: {numbers}")
    return found
