"""Beam's pool of Python workers, on the loopback interface, with workers that start at once.

    python -m engines.worker_pool PORT FOLDER

Beam's own pool listens on all interfaces; it starts an interpreter for each worker, which takes
seconds at every restart of a job; and it confuses the workers of two task managers, which use the
same numbers, so that stopping one's worker stops the other's. Here a worker is forked from a
process that has imported everything, and ends when its task manager releases it, as all workers do.
FOLDER gets a file for each worker, named after its process, with the address that controls it.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import pathlib
import sys
import threading
from concurrent import futures

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from engines import worker_process


class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts workers for task managers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")

    def StartWorker(self, request, context):
        """Forks a worker."""
        control = request.control_endpoint.url
        arguments = (control, request.worker_id, str(self._folder))
        self._context.Process(target=worker_process.run, args=arguments).start()
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request, context):
        """Does nothing: the worker ends with its connection."""
        return beam_fn_api_pb2.StopWorkerResponse()


def main(port: str, folder: str) -> None:
    """Serves until it is killed."""
    multiprocessing.set_forkserver_preload(["engines.worker_process"])
    multiprocessing.forkserver.ensure_running()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    pool = Pool(pathlib.Path(folder))
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
