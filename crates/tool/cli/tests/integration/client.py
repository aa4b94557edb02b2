"""A client for tests: client.py PORT [SECONDS]: asks once, holds 64 MiB meanwhile, prints the answer."""
import socket
import sys
import time

held = bytearray(64 << 20)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5) as server:
    server.sendall(b"go\n")
    said = server.makefile().readline()
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.05 if said else 10)
    if not said:
        sys.exit("no answer")
    print(said, end="")
