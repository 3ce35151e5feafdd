"""The `docker` driver: one isolated testbed per user network (paper, §4.1 to §4.3).

driver      the `Testbed` itself: start, load, check, stop
launch      what it consists of, from nothing to ready and to nothing again
containers  its containers, made and started in parallel
watch       notices that a part of it is gone
engine      the Docker Engine: connecting to it, its errors in our words
images      which images there are and whether they are here; `build` makes them
plan        what each container of a testbed is given (pure)
network     leasing a small subnet
cpus        disjoint CPU sets, leased from this host
labels      who owns an object, and whether that owner still lives
leftovers   what dead owners left: listing and removing it
warden      the process that removes a testbed whose owner is gone
usage       CPU time, memory and throttling of the containers
"""
