"""HyperQueue as a library: its server, one worker with CORES cores, and TASKS runs of /bin/true as one job.

`python hyperqueue_true.py TASKS CORES` prints the seconds from before the submission until the last task has ended. Its
client looks once a second, so the figure is up to a second too high: give it work for many.
"""
import contextlib
import io
import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def seconds(client, tasks):
    job = Job()
    for _ in range(tasks):
        job.program(["/bin/true"], stdout=None, stderr=None)
    begin = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    return time.monotonic() - begin


if __name__ == "__main__":
    tasks, cores = int(sys.argv[1]), int(sys.argv[2])
    with contextlib.redirect_stderr(io.StringIO()):
        with LocalCluster() as cluster:
            cluster.start_worker(WorkerConfig(cores=cores))
            client = cluster.client()
            # One task says that the worker is there.
            seconds(client, 1)
            took = seconds(client, tasks)
    print(f"seconds {took}", flush=True)
