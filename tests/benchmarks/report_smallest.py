"""The smallest program of Spark's DataFrames: a session, one `mapInArrow` in two tasks, stop."""

import sys

from pyspark.sql import SparkSession


def main(master: str) -> None:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
