"""PySpark's daemon, which forks the workers of tasks, with all imported that they need.

spark.python.daemon.module = spark.worker_daemon
"""

from pyspark.daemon import manager

from spark.preloading import preload

if __name__ == "__main__":
    preload()
    manager()
