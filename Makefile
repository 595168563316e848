# The two commands of the README are `make demo` and `make test`; each sets the project up first.
# A test that fails is tried once more and named: some start real processes, which a busy machine can hold up.
# One hash seed, so that a simulation that fails here fails again from its seed.
PYTEST = PYTHONHASHSEED=0 $(BIN)/pytest --reruns 1 -r fER
SHELL := /bin/bash
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*\#\#.*/\1/p' Makefile)

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 22

setup:  ## a .venv with everything pinned, and the native modules if there is a C compiler
	@tools/setup
	@$(BIN)/python -m compileall -q src  # a broker starts in half the time where byte code may not be written

native: setup  ## compile the native modules again after a change
	@tools/setup --native

demo: setup  ## what the product can do, in under two minutes
	@tools/demo

check: setup  ## style, types, layers and words
	$(BIN)/ruff check src tests benchmarks examples tools setup.py
	$(BIN)/ruff format --check src tests benchmarks examples tools setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/words
	$(BIN)/python tools/layout
	$(BIN)/python tools/doors
	$(BIN)/python tools/cimports
	$(BIN)/python tools/native_fields --check

acting-master: setup  ## a slave acts for its killed master: delays, transactions, pops, order, and the master's return (a minute)
	$(PYTEST) -m interop tests/interop/test_acting_master.py

replica-soak: setup  ## a master killed 60 times under load: each acknowledged message is at its slave
	ARROWMQ_KILLS=60 $(PYTEST) tests/replica/test_kills.py

unit: setup  ## the tests, with the native modules
	@tools/java
	$(PYTEST) -m "not interop" -n 2 --dist loadgroup

reference: setup  ## the same tests, without the native modules: the pure-Python reference only
	ARROWMQ_PURE_PYTHON=1 $(PYTEST) -m "not interop and not spark" $(patsubst %,--ignore tests/%,chaos console fuzz sim) -n 2 --dist loadgroup

test: check unit reference  ## everything that guards a change

audit: setup  ## dependencies with known vulnerabilities, by pip-audit (needs the advisories of PyPI or OSV)
	@tools/audit

asan: setup  ## the native modules under AddressSanitizer, built apart from the others
	@tools/asan

interop: setup  ## real Java, Go and Node clients and the real Apache broker against ours
	$(PYTEST) -m interop tests/interop --ignore tests/interop/test_mqadmin.py --ignore tests/interop/test_mqadmin_controller.py --ignore tests/interop/test_acting_master.py -n 3 --dist loadfile

chaos: setup  ## brokers killed, stopped, cut off under load, audited; Porcupine on top (OPTIONS="--cluster trio --on apache --faults 20")
	$(BIN)/python -u tests/chaos/crash_machine.py --faults 100 --history build/history.jsonl $(OPTIONS)
	cd tests/chaos/porcupine && go run . ../../../build/history.jsonl

load: setup  ## every kind of work at once, stalled readers, floods, 1,000 joining members, many queues (OPTIONS="--minutes 120 --queues 100000")
	$(BIN)/python -u tests/chaos/held_load.py --results bench-results/load.md $(OPTIONS)

kinds-soak: setup  ## every kind of message at length: many kill points and seeds, 100,000 messages a key, a million delays
	ARROWMQ_SEEDS=20 $(PYTEST) tests/chaos -n 2
	ARROWMQ_SEEDS=5 ARROWMQ_SOAK=1 $(PYTEST) -m interop tests/interop/test_differential.py tests/interop/test_crashes.py
	ARROWMQ_SOAK=1 $(PYTEST) -m interop tests/interop/test_order_and_time.py tests/interop/test_kinds.py
	$(BIN)/python -m benchmarks.pending

power-cuts: setup  ## 10,000 seeded losses of power under a store on a sound disk, and as many on one that fails (3 minutes)
	ARROWMQ_CUTS=10000 $(PYTEST) --timeout 3600 --show-capture=no -n 2 tests/powercut

sim: setup  ## simulated clusters on virtual time: 100 hours over 2,000 seeds and more, kills, power cuts, partitions (OPTIONS="--play trio-cut")
	PYTHONHASHSEED=0 $(BIN)/python -u tests/sim $(OPTIONS)

fuzz: setup  ## bytes from peers and disks, five minutes a target, coverage-guided (OPTIONS="frames --minutes 60": a part)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check "atheris>=2.3"
	$(BIN)/python -u tests/fuzz $(OPTIONS)

fuzz-grpc: setup  ## every gRPC request message for half an hour, at a proxy with its broker (OPTIONS="--minutes 5")
	$(BIN)/python -u tests/proxy/fuzz.py $(OPTIONS)

native-fuzz: setup  ## the native modules under libFuzzer and AddressSanitizer, built apart (OPTIONS="frames --minutes 60": a part)
	@tools/native-fuzz $(OPTIONS)

failover-soak: setup  ## a hundred seeded fail-overs under load, audited (OPTIONS="--on apache --failovers 20")
	ARROWMQ_SOAK=1 $(PYTEST) -m interop tests/interop/test_failover.py tests/interop/test_replicas.py tests/interop/test_reading_on.py
	$(BIN)/python -u tests/interop/failover_soak.py $(OPTIONS)

pop-soak: setup  ## pop against its model: 400,000 random steps from seeds of this day (20 minutes)
	POP_SOAK_SEEDS=100 POP_SOAK_STEPS=2000 POP_SOAK_FIRST_SEED=$$(date +%Y%m%d)00 $(PYTEST) tests/broker/pop/test_pop_model.py -n 2

pop-steps: setup  ## the model's steps over the wire on our broker and on Apache's: what each of them breaks (8 minutes; OPTIONS="--on arrowmq --seeds 10")
	$(BIN)/python -u tests/interop/pop_steps.py $(OPTIONS)

interop-grpc: setup  ## RocketMQ's own gRPC clients through every kind of proxy, and the conversation with Apache's (10 minutes)
	ARROWMQ_ALL_PLACES=1 $(PYTEST) -m interop tests/interop -k grpc

interop-remoting: setup  ## remoting clients through our proxy before every kind of broker, and through Apache's; then the suites of Java, Go and Node by our proxy (15 minutes)
	for place in mixed ours theirs apaches-proxy; do ARROWMQ_PROXY_PLACE=$$place $(PYTEST) -m interop tests/interop/test_remoting_proxy.py || exit 1; done
	$(PYTEST) -m interop tests/interop/test_every_client.py --target proxy
	$(PYTEST) -m interop tests/interop/test_every_client.py --target proxy-apache -k "5.5-json"
	$(BIN)/python tests/interop/client_suite.py proxy

client-suite: setup  ## the Python client's own tests, unchanged, against the Apache broker: 5.5 and 4.9 (6 minutes)
	$(BIN)/python tests/interop/client_suite.py

first-retry: setup  ## how long the first retry of 50 new groups takes, on our servers and on Apache's (4 minutes)
	$(BIN)/python tests/interop/first_retry.py

apache-its: setup  ## Apache's own integration tests on its brokers and on ours (OPTIONS="--on arrowmq pop": a part; docs/apache-its.md)
	$(BIN)/python -u -m tests.interop.apache_its $(OPTIONS)

console-test: setup  ## the console in a real browser, 10,000 dead letters, its costs, Schemathesis over its API (installs Chromium)
	@tools/console-test

console-cost: setup  ## what a console costs, on 1,000 topics and 500 groups: brokers, memory, the first page (two minutes, alone)
	ARROWMQ_COST=1 $(PYTEST) -q -s --timeout 600 tests/console/test_cost.py

packages: setup  ## build the wheel and the source package, install each into an empty environment and use it there
	@tools/packages

mqadmin: setup  ## every mqadmin subcommand on the Apache broker and on ours, compared field by field (8 minutes)
	$(PYTEST) -m interop tests/interop/test_mqadmin.py tests/interop/test_mqadmin_controller.py

bench: setup  ## ArrowMQ beside the Apache broker, in one run
	$(BIN)/python -m benchmarks

bench-quick: setup  ## the same in about five minutes, and before that with memory as the machine has it
	$(BIN)/python -m benchmarks --quick

bench-secured: setup  ## what signatures, rights and TLS cost, beside the Apache broker
	$(BIN)/python -m benchmarks.secured

bench-peers: setup  ## ArrowMQ beside Kafka, NATS JetStream and Redis streams
	$(BIN)/python -m benchmarks.peers

bench-growth: setup  ## how the cost of a message grows with topics, connections and sizes
	$(BIN)/python -m benchmarks.growth

bench-pauses: setup  ## how long the broker's loop is held up by flushes, new files and reads from the disk
	$(BIN)/python -m benchmarks.pauses

bench-pop: setup  ## pops and acks beside the Apache broker: rate, CPU, latency, a million messages in flight
	$(BIN)/python -m benchmarks.pop --java

bench-replicas: setup  ## what a slave costs, our pair beside Apache's (7 minutes)
	$(BIN)/python -m benchmarks.replicas

bench-proxy: setup  ## gRPC clients, raw and Java: our proxy beside Apache's local one, and 5,000 idle streams (7 minutes)
	$(BIN)/python -m benchmarks.proxy

bench-failover: setup  ## how long a lost master is missed, our trio and Apache's (20 minutes; OPTIONS="killed --systems arrowmq": a part)
	$(BIN)/python -m benchmarks.failover $(OPTIONS)

bench-spark: setup  ## Spark on ArrowMQ beside Spark's Kafka connector on Kafka
	@tools/java
	$(BIN)/python -m benchmarks.spark

spark-soak: setup  ## Spark streams killed at seeded points, and a million rows on our broker and on Apache's
	@tools/java
	$(BIN)/python tests/spark/soak

pipeline-soak: setup  ## the pipelines through the real command, killed at seeded points and started again
	@tools/java
	$(BIN)/python tests/spark/pipeline_soak.py

spark-next: setup  ## the Spark tests on Spark 4.3, in an environment of its own
	@tools/java
	@tools/spark-next

clean:  ## forget everything that was built
	rm -rf .venv build dist src/*.egg-info
	find src -name '*.so' -delete
