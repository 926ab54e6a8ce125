package docker_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/test/engines"
)

// TestOrders stops, kills and starts dockerd, the daemon and containers in random orders, and
// compares the result of each order with a model. In the end, every container that its restart
// policy starts must run and be reachable at its ports, the other containers can be started, and no
// endpoint of an ended container is left.
//
// FAIRLEAD_ORDERS is the number of orders, FAIRLEAD_SEED the seed of the random numbers.
func TestOrders(t *testing.T) {
	t.Parallel()
	count, seed := variable(t, "FAIRLEAD_ORDERS", 2), variable(t, "FAIRLEAD_SEED", 12)
	hosts := min(max(count/10, 1), 3)
	dir := programs(t)
	for name, programs := range engines.All(t) {
		for n := range hosts {
			t.Run(fmt.Sprintf("%s-%d", name, n), func(t *testing.T) {
				t.Parallel()
				for next, from := n, -1; next < (count+1)/2 && next != from; {
					from = next
					t.Run(fmt.Sprintf("from-%d", from), func(t *testing.T) { // until the end or the first failure
						o := newOrders(newHost(t, dir, programs))
						for next < (count+1)/2 {
							i := next
							next += hosts
							o.take(i, rand.New(rand.NewPCG(uint64(seed), uint64(i))))
						}
					})
				}
			})
		}
	}
}

func variable(t *testing.T, name string, fallback int) int {
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%s: want a number", name, text)
	}
	return n
}

const (
	// ordersTimeout is how long both daemons may show no activity before an order fails. dockerd
	// waits half a minute for a plugin that is down, several times.
	ordersTimeout = 5 * time.Minute
	// pluginTimeout is how long the daemon may be down while dockerd starts containers: dockerd
	// retries a call for 15 seconds.
	pluginTimeout = 5 * time.Second
)

// ordered is a container with its state in the model.
type ordered struct {
	name, network, policy, options string
	port                           int
	// stopped is true if a user stopped the container. missed is true if dockerd may fail to start
	// it by itself: the daemon was down for too long, or dockerd was killed.
	stopped, missed bool
	pid             string
}

// orders is a host on which orders are executed.
type orders struct {
	*host
	all []*ordered
	// restarts receives the result of a dockerd that is being started; nil if none is being
	// started.
	restarts chan error
	// dockerUp and daemonUp report which of the two run, or are being started.
	dockerUp, daemonUp bool
	// restore is the value of live-restore. killed is true if dockerd ended without ending its
	// containers, so that it has to end them when it starts.
	restore, killed bool
	// dockerBegun is the time of dockerd's last start.
	dockerBegun time.Time
	// alone is the time since when dockerd runs without the daemon.
	alone time.Time
	// taken lists the steps since begun. lines is the number of lines that the daemon had logged
	// then.
	taken []string
	begun time.Time
	lines int
}

func newOrders(h *host) *orders {
	h.docker("network", "create", "-d", "fairlead", "--ipam-driver", "fairlead", "-o", "via=nat", "one")
	h.docker("network", "create", "-d", "fairlead", "-o", "via=ebpf", "two")
	o := &orders{host: h, dockerUp: true, daemonUp: true}
	for i, policy := range []string{"always", "unless-stopped", "always", "unless-stopped", "always",
		"unless-stopped"} {
		c := &ordered{name: fmt.Sprintf("c%d", i), network: []string{"one", "two"}[i%2], policy: policy, port: 8000 + i}
		if i > 3 {
			c.options = ",driver-opt=via=proxy"
		}
		o.all = append(o.all, c)
		o.run(c)
	}
	return o
}

func (o *orders) run(c *ordered) {
	o.docker("run", "-d", "--name", c.name, "--restart", c.policy, "--network", "name="+c.network+c.options,
		"-p", fmt.Sprintf("%d:80", c.port), "program", "serve", "name:"+c.name, "tcp:80")
	c.stopped, c.missed = false, false
}

// step is an action that may happen.
type step struct {
	name     string
	possible bool
	do       func()
}

// take executes one order. Before and after it, dockerd, the daemon and all containers run.
func (o *orders) take(number int, random *rand.Rand) {
	o.taken, o.restore = nil, number%2 == 1
	o.begun, o.lines = time.Now(), len(o.said.lines())-1
	o.live(o.restore)
	o.pids()
	steps := 2 + random.IntN(5)
	if number == 0 { // the order in which a bug was found
		for _, name := range []string{"daemon kill", "docker kill", "daemon start", "docker start"} {
			o.step(name, o.steps(o.all[0]))
		}
		steps = 0
	}
	for range steps {
		possible := slices.DeleteFunc(o.steps(o.all[random.IntN(len(o.all))]), func(s step) bool { return !s.possible })
		o.step(possible[random.IntN(len(possible))].name, possible)
	}
	if !o.dockerUp && random.IntN(2) == 0 {
		o.step("docker start", o.steps(o.all[0]))
	}
	if !o.daemonUp {
		o.step("daemon start", o.steps(o.all[0]))
	}
	if !o.dockerUp {
		o.step("docker start", o.steps(o.all[0]))
	}
	o.settled()
	o.Logf("order %d, live-restore %t, in %v: %s", number, o.restore, time.Since(o.begun).Round(time.Second),
		strings.Join(o.taken, ", "))
}

func (o *orders) step(name string, of []step) {
	i := slices.IndexFunc(of, func(s step) bool { return s.name == name })
	o.taken = append(o.taken, name)
	of[i].do()
}

// steps returns all steps; those for containers act on c.
func (o *orders) steps(c *ordered) []step {
	runs := o.dockerUp && o.daemonUp
	// A dockerd that is being started without the daemon may take minutes.
	idle := o.daemonUp || o.restarts == nil
	return []step{
		{"daemon stop", o.daemonUp, func() { o.endDaemon("TERM") }},
		{"daemon kill", o.daemonUp, func() { o.endDaemon("KILL") }},
		{"daemon start", !o.daemonUp, o.startDaemon},
		{"docker stop", o.dockerUp && idle, func() { o.endDocker(syscall.SIGTERM) }},
		{"docker kill", o.dockerUp && idle, func() { o.endDocker(syscall.SIGKILL) }},
		{"docker start", !o.dockerUp, o.startDocker},
		{"crash " + c.name, !c.stopped && idle, func() { o.crash(c) }},
		{"stop " + c.name, runs && !c.stopped, func() {
			o.awaitDocker()
			if o.lost(c, nil) {
				o.replace(c)
			}
			o.docker("stop", "-t", "1", c.name)
			c.stopped = true
		}},
		{"start " + c.name, runs && c.stopped, func() {
			o.awaitDocker()
			o.startAgain(c)
			c.stopped = false
		}},
		{"replace " + c.name, runs, func() {
			o.awaitDocker()
			o.docker("rm", "-f", c.name)
			o.run(c)
		}},
	}
}

func (o *orders) endDaemon(signal string) {
	o.sh("kill -" + signal + " $(cat /run/fairlead/pid)")
	o.daemonEnds()
	o.daemonUp, o.alone = false, time.Now()
}

func (o *orders) startDaemon() {
	o.start()
	o.daemonUp = true
	o.miss()
}

// miss marks containers that dockerd may have failed to start without the daemon.
func (o *orders) miss() {
	if o.dockerUp && !o.alone.IsZero() && time.Since(o.alone) > pluginTimeout {
		for _, c := range o.all {
			c.missed = true
		}
	}
	o.alone = time.Time{}
}

func (o *orders) endDocker(s syscall.Signal) {
	o.awaitDocker()
	if !o.daemonUp {
		o.miss()
	}
	o.pids()
	if err := o.Signal(s); err != nil {
		o.Fatal(err)
	}
	o.dockerUp, o.killed = false, !o.restore && (s == syscall.SIGKILL || !o.daemonUp)
}

// startDocker starts dockerd. dockerd may need the daemon before it is ready.
func (o *orders) startDocker() {
	o.dockerUp, o.restarts, o.dockerBegun = true, make(chan error, 1), time.Now()
	if !o.daemonUp {
		o.alone = time.Now()
	}
	for _, c := range o.all {
		switch {
		case c.policy == "always":
			c.stopped = false
		case o.killed: // dockerd treats containers that it ended itself as stopped by a user
			c.missed = true
		}
	}
	go func() { o.restarts <- o.Restart(o.whole.Context()) }()
}

// awaitDocker waits for a dockerd that is being started.
func (o *orders) awaitDocker() {
	if o.restarts == nil {
		return
	}
	if err := <-o.restarts; err != nil {
		o.Fatalf("after %v: %v", o.taken, err)
	}
	o.restarts = nil
}

// pids records the processes of the containers.
func (o *orders) pids() {
	for _, c := range o.all {
		c.pid = o.docker("inspect", "-f", "{{.State.Pid}}", c.name)
	}
}

// crash kills a container's process, whether dockerd and the daemon run or not.
func (o *orders) crash(c *ordered) {
	if o.dockerUp {
		o.awaitDocker()
		c.pid = o.docker("inspect", "-f", "{{.State.Pid}}", c.name)
		if !o.daemonUp {
			c.missed = true
		}
	}
	o.sh(fmt.Sprintf(`case "$(readlink /proc/%s/exe)" in (*/program) kill -9 %s ;; esac`, c.pid, c.pid))
}
