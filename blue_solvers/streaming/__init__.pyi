from blue_solvers.results.checksums import DamagedError as DamagedError
from blue_solvers.streaming.measured_folder import Summary as Summary
from blue_solvers.streaming.measured_folder import estimate_measurements as estimate_measurements
from blue_solvers.streaming.part_files import PartitionError as PartitionError
from blue_solvers.streaming.part_files import Partitions as Partitions
from blue_solvers.streaming.partition import partition as partition
from blue_solvers.streaming.partition import partition_source as partition_source
from blue_solvers.streaming.run import stream as stream
