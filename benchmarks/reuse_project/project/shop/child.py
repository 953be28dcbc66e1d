import multiprocessing
import os
import subprocess
import sys
import threading
from shop.price import half

def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

def module():
    return said(sys.executable, "-m", "shop.show")

def script():
    return said(sys.executable, "scripts/show.py")

def script_docs():
    return said(sys.executable, "scripts/docs.py")

def command():
    return said(sys.executable, "-c", "from shop.price import half; print(half(8))")

def shell():
    return said("sh", "-c", "cat shop/till.txt")

def forked():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, bytes([half(8)]))
        os._exit(0)
    os.wait()
    return os.read(reading, 1)[0]

def spawned():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(half, [8])
        pool.close()
        pool.join()
    return found

def threaded():
    found = []
    thread = threading.Thread(target=lambda: found.append(half(8)))
    thread.start()
    thread.join()
    return found
