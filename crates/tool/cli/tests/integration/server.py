"""A server for tests: answers one line of words with a line of numbers. Its arguments say how it misbehaves.

server.py PORT [MIB] [WORD...]

MIB  memory to hold, touched before it listens
deaf          ignores SIGTERM
dies          ends when a client says `go`
background    goes on in a child of a session of its own, and ends itself
forks         a child holds the memory, all of it before the server listens
taken         says that its port is in use, and ends
mute          never listens
"""
import mmap
import os
import signal
import socket
import sys
import time

port = int(sys.argv[1])
mib = int(sys.argv[2]) if len(sys.argv) > 2 else 0
words = sys.argv[3:]

if "taken" in words:
    sys.exit("bind: Address already in use")
if "deaf" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "background" in words:
    if os.fork():
        os._exit(0)
    os.setsid()


def hold():
    memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, mib << 20, 4096):
        memory[at] = 1
    return memory


if "forks" in words:
    held, holds = os.pipe()
    if not os.fork():
        memory = hold()
        os.close(holds)
        while os.getppid() != 1:
            time.sleep(0.05)
        os._exit(0)
    os.close(holds)
    os.read(held, 1)
memory = hold() if mib and "forks" not in words else None
while "mute" in words:
    time.sleep(1)

with socket.create_server(("127.0.0.1", port)) as listener:
    while True:
        client, _ = listener.accept()
        with client:
            asked = client.makefile().readline()
            if "go" in asked and "dies" in words:
                sys.stderr.write("out of luck\n")
                sys.exit(7)
            client.sendall(b"rate 100 p99 3\n")
