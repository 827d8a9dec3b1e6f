"""The products of the 2020 noisy measurement files as the facts about them say: attributes, queries, constraints.

Nothing here comes from the package but the partitions of household types, which other tests compare with their source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.intp]


def levels(text: str) -> list[int]:
    """Levels from ranges such as ``0-14,90-115``."""
    ends = [piece.strip().partition("-") for piece in text.split(",")]
    return [level for first, _, last in ends for level in range(int(first), int(last or first) + 1)]


def groups(text: str) -> Index:
    """The group of every level from ranges parted by ``|``."""
    parts = [levels(part) for part in text.split("|")]
    found = np.full(sum(map(len, parts)), -1)
    for number, part in enumerate(parts):
        found[part] = number
    return found


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes
    ----------
    folder : str
    geolevels : tuple of str
    sizes : mapping of attribute to int
        In the schema's order.
    recodes : mapping of attribute to mapping of name to group of every level
    selections : mapping of attribute to mapping of name to levels
    queries : mapping of name to rho by geolevel
        Factors in the order of the files' names.
    zeros : mapping of constraint to mapping of attribute to name of a selection
    """

    folder: str
    geolevels: tuple[str, ...]
    sizes: Mapping[str, int]
    recodes: Mapping[str, Mapping[str, Index]]
    selections: Mapping[str, Mapping[str, list[int]]]
    queries: Mapping[str, float]
    zeros: Mapping[str, Mapping[str, str]]

    def attribute_of(self, factor: str) -> str:
        """Whose factor it is."""
        if factor in self.sizes:
            return factor
        return next(name for name, own in self.recodes.items() if factor in own)

    def said(self, query: str) -> dict[str, str]:
        """What the attribute columns of a query say, ``detailed`` spelt so."""
        if query == "detailed":
            return dict.fromkeys(self.sizes, "detailed")
        own = {} if query == "total" else {self.attribute_of(factor): factor for factor in query.split(" * ")}
        return {name: own.get(name, "*") for name in self.sizes}

    def groups_said(self, said: Mapping[str, str]) -> list[Index | None]:
        """The group of every level along every attribute; None where it is summed out."""
        found: list[Index | None] = []
        for name, size in self.sizes.items():
            text = said[name]
            if text == "*":
                found.append(None)
            else:
                found.append(np.arange(size) if text in ("detailed", name) else self.recodes[name][text])
        return found

    def cells(self, said: Mapping[str, str]) -> tuple[Index, tuple[int, ...]]:
        """The cell, in C order of the attributes, of every detailed one, and the shape with 1 where summed out."""
        shape, code = [], np.zeros((1,) * len(self.sizes), dtype=np.int64)
        for axis, own in enumerate(self.groups_said(said)):
            lengths = [1] * len(self.sizes)
            if own is None:
                shape.append(1)
                continue
            shape.append(int(own.max()) + 1)
            lengths[axis] = own.size
            code = code * shape[-1] + own.reshape(lengths)
        return np.broadcast_to(code, tuple(self.sizes.values())).ravel(), tuple(shape)

    def counted(self, said: Mapping[str, str], records: Index) -> tuple[Index, tuple[int, ...]]:
        """How many records, by their detailed cells, are in every cell of `cells`; and the shape."""
        places, code, shape = np.unravel_index(records, tuple(self.sizes.values())), np.zeros_like(records), []
        for place, own in zip(places, self.groups_said(said), strict=True):
            shape.append(1 if own is None else int(own.max()) + 1)
            code = code if own is None else code * shape[-1] + own[place]
        return np.bincount(code, minlength=int(np.prod(shape))), tuple(shape)

    def allowed(self) -> NDArray[np.bool_]:
        """Which detailed cells no edit rule forbids, flat."""
        whole = np.ones(tuple(self.sizes.values()), dtype=bool)
        for chosen in self.zeros.values():
            lists = [
                self.selections[name][chosen[name]] if name in chosen else list(range(size))
                for name, size in self.sizes.items()
            ]
            whole[np.ix_(*lists)] = False
        return whole.ravel()


def puerto_rico(product: Product) -> Product:
    """The same of Puerto Rico, whose root is its one geounit at State."""
    return replace(product, folder=product.folder.replace("US", "PR"), geolevels=product.geolevels[1:])


PL94_LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
DHC_LEVELS = ("US", "State", "County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Block_Group", "Block")

PL94_PERSONS = Product(
    "US_Person_PL_PROD",
    PL94_LEVELS,
    {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 63},
    {"hhgq": {"hhinstlevels": groups("0 | 1-4 | 5-7")}},
    {"hhgq": {"gqNursingTotal": [3]}, "votingage": {"nonvoting": [0]}},
    {
        "total": 0.5,
        "hhgq": 0.01,
        "hhinstlevels": 0.01,
        "votingage": 0.01,
        "hispanic": 0.01,
        "cenrace": 0.02,
        "hispanic * votingage": 0.01,  # names hold factors in any order
        "votingage * cenrace": 0.02,
        "cenrace * hispanic": 0.03,
        "votingage * hispanic * cenrace": 0.05,
        "detailed": 0.1,
    },
    {"nurse_nva_0": {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}},
)

PL94_UNITS = Product("US_Unit_PL_PROD", PL94_LEVELS, {"h1": 2}, {}, {}, {"detailed": 0.05}, {})

RELGQ_AGES = {
    "lt15": ("age_lessthan15", "0-14", (0, 1, 2, 3, 4, 5, 18, 19, 20, 21, 22)),
    "gt89": ("age_greaterthan89", "90-115", (6, 7, 8)),
    "lt30": ("age_lessthan30", "0-29", (10, 12)),
    "gt74": ("age_gt74", "75-115", (11,)),
    "lt15_gt89": ("age_lt15_gt89", "0-14,90-115", (13,)),
    "gt20": ("age_gt20", "21-115", (16,)),
    "lt17_gt65": ("age_lt17gt65", "0-16,66-115", (23, 31, 34, 35)),
    "gt25": ("age_greaterthan25", "26-115", (24, 25, 26)),
    "lt20": ("age_lessthan20", "0-19", (27,)),
    "lt3_gt30": ("age_lt3_gt30", "0-2,31-115", (32,)),
    "lt16_gt65": ("age_lt16gt65", "0-15,66-115", (33,)),
    "lt16": ("age_lt16", "0-15", (37, 38)),
    "lt16_gt75": ("age_lt16_gt75", "0-15,76-115", (39,)),
}
SINGLE_YEARS = " | ".join(map(str, range(18)))
AGES_40 = f"""{SINGLE_YEARS} | 18-19 | 20-24 | 25-29 | 30-34 | 35-39 | 40-44 | 45-49 | 50-54 | 55-59 | 60-61 | 62-64
    | 65-66 | 67-69 | 70-74 | 75-79 | 80-84 | 85-89 | 90-94 | 95-99 | 100-104 | 105-109 | 110-115"""
AGES_38 = AGES_40.replace("15 | 16 | 17", "15-17")
ONE_BY_ONE = SINGLE_YEARS  # relationships, of which there are as many
GQ_8 = "18-23 | 24-26 | 27 | 28-32 | 33 | 34-35 | 36-41"

DHC_PERSONS = Product(
    "US_DHCP_PROD",
    DHC_LEVELS,
    {"relgq": 42, "sex": 2, "age": 116, "hispanic": 2, "cenrace": 63},
    {
        "relgq": {
            "relgq_4_groups": groups("0-1 | 2-17 | 18-32 | 33-41"),
            "gq_constr_groups": groups("0-17 | 32 | 18-22 | 33,37-41 | 23,31,34-35 | 24-30,36"),
            "popSehsdTargetsRelship": groups(f"{ONE_BY_ONE} | 18-41"),
            "relship_and_eight_level_GQ": groups(f"{ONE_BY_ONE} | {GQ_8}"),
            "hhgq8lev": groups(f"0-17 | {GQ_8}"),
            "gqlevels": groups("0-17 | " + " | ".join(map(str, range(18, 42)))),
        },
        "age": {
            "votingage": groups("0-17 | 18-115"),
            "age_18_64_116": groups("0-17 | 18-64 | 65-115"),
            "age_10_groups": groups("0-2 | 3-14 | 15 | 16 | 17 | 18-19 | 20-24 | 25-29 | 30-34 | 35-115"),
            "age_38_groups": groups(AGES_38),
            "age_40_groups": groups(AGES_40),
        },
    },
    {
        "relgq": {f"relgq{i}": [i] for i in range(42)},
        "age": {name: levels(text) for name, text, _ in RELGQ_AGES.values()},
    },
    {
        "hispanic * sex": 0.03,
        "age_18_64_116 * sex": 0.03,
        "age_38_groups * sex": 0.03,
        "sex * relgq_4_groups": 0.03,
        "age_18_64_116 * relgq_4_groups": 0.03,
        "gq_constr_groups * age_10_groups": 0.12,
        "popSehsdTargetsRelship": 0.12,
        "relgq * age_40_groups * hispanic * cenrace * sex": 0.03,
        "hispanic * sex * age_40_groups * relship_and_eight_level_GQ * cenrace": 0.03,
        "detailed": 0.03,
    },
    {
        f"relgq{i}_{short}": {"relgq": f"relgq{i}", "age": name}
        for short, (name, _, own) in RELGQ_AGES.items()
        for i in own
    },
)

HHTYPES = {
    "size1": "392-393",
    "child_alone": "393",
    "type2_onechildxhh": "394,415,445,456,493,499",
    "type2_onechild": "76,162,276,386,394,415,445,456,487,493,499,516",
    "type2_couple": "66,76,152,162,270,276,380,386",
    "type3_couple_with_child": "0,17,86,103,172,189,282,299",
    "type3_twochild": "436",
    "type4_couple_with_twochildren": "34,120,206,316",
    "ownchild_under6": "0-16,34-40,86-102,120-126,172-188,206-212,282-298,316-322,394-414,436-444",
    "ownchild_under18": "0-40,86-126,172-212,282-322,394-444",
}
HHAGES = {
    "age_under60": "0-4", "age_60to64": "5", "age_65to74": "6", "age_75plus": "7-8", "age_60plus": "5-8",
    "age_15to24": "0", "hhover24": "1-8",
}  # fmt: skip
ELDERLY = {
    "invert_elderly0": "1-3", "invert_elderly1": "0,2-3", "invert_elderly2": "0-1,3", "invert_elderly3": "0-2",
    "pres_under65": "0-1", "pres_under60": "0", "elderly3": "3",
}  # fmt: skip
AGES_BY_ELDERLY = ("age_under60", "age_60to64", "age_65to74", "age_75plus")


def _of_elderly(prefix: str, first: str, other: str) -> dict[str, dict[str, str]]:
    """The oldest present follows from the householder's age: four rules."""
    return {
        f"{prefix}_eld{i}": {"hhage": age, "elderly": f"invert_elderly{i}", "hhtype_dhch": first if i == 0 else other}
        for i, age in enumerate(AGES_BY_ELDERLY)
    }


def _young_couple(kind: str) -> dict[str, str]:
    return {"hhage": "age_15to24", "elderly": "elderly3", "hhtype_dhch": kind}


HOUSEHOLD_ZEROS: dict[str, dict[str, str]] = {
    **_of_elderly("living_alone", "size1", "size1"),
    "living_alone_childalone": {"hhage": "hhover24", "hhtype_dhch": "child_alone"},
    **_of_elderly("size2", "type2_onechildxhh", "type2_onechild"),
    "size2_le25_eld3": _young_couple("type2_couple"),
    "size3_le25_eld3": _young_couple("type3_couple_with_child"),
    **_of_elderly("size3", "type3_twochild", "type3_twochild"),
    "size4_le25_eld3": _young_couple("type4_couple_with_twochildren"),
    "hh_elderly_eld3": {"hhage": "age_75plus", "elderly": "invert_elderly3"},
    "hh_elderly_2": {"hhage": "age_65to74", "elderly": "pres_under65"},
    "hh_elderly_3": {"hhage": "age_60to64", "elderly": "pres_under60"},
    "age_child_1": {"sex": "male", "hhage": "age_75plus", "hhtype_dhch": "ownchild_under6"},
    "age_child_2": {"sex": "female", "hhage": "age_75plus", "hhtype_dhch": "ownchild_under18"},
    "age_child_3": {"sex": "female", "hhage": "age_60plus", "hhtype_dhch": "ownchild_under6"},
}


def dhc_households(hhtypes: Mapping[str, Index]) -> Product:
    """Households of DHC, with the partitions of household types, which are long."""
    types = "DetailedCoupleTypeMultGenDetOwnChildSize"
    return Product(
        "US_DHCH_PROD",
        DHC_LEVELS,
        {"sex": 2, "hhage": 9, "hisp": 2, "race": 7, "elderly": 4, "hhtenshort_3lev": 3, "hhtype_dhch": 522},
        {"hhtenshort_3lev": {"hhtenshort_2lev": groups("0-1 | 2")}, "hhtype_dhch": hhtypes},
        {
            "sex": {"male": [0], "female": [1]},
            "hhage": {name: levels(text) for name, text in HHAGES.items()},
            "elderly": {name: levels(text) for name, text in ELDERLY.items()},
            "hhtype_dhch": {name: levels(text) for name, text in HHTYPES.items()},
        },
        {
            "multig * hisp * hhtenshort_2lev": 0.1,
            "hisp * hhtenshort_2lev": 0.03,
            "hisp * hhtenshort_2lev * race": 0.15,
            "partner_type_detailed_own_child_status * sex * hhtenshort_2lev": 0.2,
            "coupled_hh_type * hisp * hhtenshort_2lev": 0.4,
            f"sex * hisp * hhtenshort_3lev * race * {types}": 0.15,
            f"sex * hisp * hhtenshort_3lev * race * hhage * {types}": 0.15,
            f"hhtenshort_3lev * hhage * {types}": 0.03,
            "detailed": 0.15,
        },
        HOUSEHOLD_ZEROS,
    )
