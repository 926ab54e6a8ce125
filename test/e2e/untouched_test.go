package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyPath lists paths of every kind: Fairlead's proxy and rules, a bridge filter, other programs'
// processes, configurations made by hand and with plugins.
var everyPath = []string{"host", "nat", "proxy", "routed", "docker-proxy", "hand-dnat", "hop-conntrack", "filter-off",
	"filter-on",
	"hand-vxlan", "hand-device", "cni-bridge", "cni-macvlan", "slirp4netns", "pasta"}

// short makes a run as short as possible.
var short = []string{"--rounds", "1", "--duration", "50ms"}

// figures makes a run long enough for both sides to send on a busy machine, for tests that use the
// figures.
var figures = []string{"--rounds", "1", "--duration", "300ms"}

func TestHostIsUntouched(t *testing.T) {
	for _, s := range []struct {
		name string
		args []string
		prep func(*room)
		code int
		says []string
	}{
		{name: "after a run", args: append([]string{"--client", "remote,peer", "--workload", "tcp-bulk"},
			everyPath...)},
		{
			name: "after a run that fails", args: []string{"nat", "--workload", "tcp-bulk", "--with", "iperf3"},
			prep: func(r *room) { r.replace("#!/bin/sh\necho broken; exit 3\n", "iperf3") },
			code: 1, says: []string{"2 of 4 measurements have no figure", "broken"},
		},
		{
			name: "when a path cannot be built", args: []string{"nat", "hand-dnat", "--workload", "tcp-bulk"},
			prep: func(r *room) { r.replace("#!/bin/sh\necho broken >&2; exit 3\n", "nft") },
			code: 1, says: []string{"path hand-dnat was not measured", "broken"},
		},
		{
			name: "when the baseline cannot be built",
			args: []string{"nat", "--baseline", "hand-dnat", "--workload", "tcp-bulk"},
			prep: func(r *room) { r.replace("#!/bin/sh\necho broken >&2; exit 3\n", "nft") },
			code: 2, says: []string{"baseline hand-dnat", "broken"},
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			r := newRoom(t)
			before := r.snapshot()
			if s.prep != nil {
				s.prep(r)
			}
			run, args := r.run, append(append([]string{"lab", "run"}, s.args...), short...)
			if s.code == 0 {
				run = func(args ...string) outcome { return r.undisturbed("report.json", args...) }
			}
			run(args...).expect(t, s.code, s.says)
			r.restore()
			r.untouched(before)
		})
	}
}

// TestSnapshotDetectsChanges checks that a snapshot shows each kind of change on a host.
func TestSnapshotDetectsChanges(t *testing.T) {
	for name, change := range map[string]string{
		"link":      "ip link add left type bridge",
		"address":   "ip addr add 192.0.2.11/24 dev uplink",
		"route":     "ip route add 10.0.0.0/8 via 192.0.2.1",
		"rule":      "nft add table inet fairlead",
		"setting":   "echo 1 > /proc/sys/net/ipv4/conf/uplink/route_localnet",
		"namespace": "ip netns add left",
		"program":   "mkdir /sys/fs/bpf/left",
		"cgroup":    "mkdir " + cgroups() + "/fairlead-lab-left",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			before := fmt.Sprint(r.snapshot())
			r.sh(change)
			if fmt.Sprint(r.snapshot()) == before {
				t.Errorf("%s is not detected", change)
			}
		})
	}
	t.Run("process", func(t *testing.T) {
		r := newRoom(t)
		sleeper := &process{room: r, cmd: r.command("sleep", "1000")}
		sleeper.launch()
		r.until("the process is found", func(all []descendant) bool { return len(all) == 1 })
	})
}

// long is a command that runs until it is interrupted.
var long = []string{"lab", "run", "host", "nat", "proxy", "docker-proxy", "hand-dnat", "filter-off", "cni-ptp",
	"slirp4netns", "pasta",
	"--client", "remote,peer", "--rounds", "100", "--duration", "10s"}

func TestInterrupted(t *testing.T) {
	for _, s := range []struct {
		name   string
		signal syscall.Signal
		code   int
		says   string
		when   func(*process)
	}{
		{"by Ctrl-C in the middle of a run", syscall.SIGINT, 130, "interrupt", (*process).measuring},
		{"by SIGTERM in the middle of a run", syscall.SIGTERM, 143, "terminated", (*process).measuring},
		{"by the end of its terminal in the middle of a run", syscall.SIGHUP, 129, "hangup", (*process).measuring},
		{"by Ctrl-C while paths are built", syscall.SIGINT, 130, "interrupt", (*process).building},
	} {
		t.Run(s.name, func(t *testing.T) {
			r := newRoom(t)
			before := r.snapshot()
			p := r.start(append(long, "--json", r.file("report.json"))...)
			s.when(p)
			p.signal(s.signal)
			o := p.wait()
			o.expect(t, s.code, []string{"interrupted by " + s.says})
			if strings.Count(o.stderr, "\n") != 1 || strings.Contains(o.stderr, "killed") {
				t.Errorf("standard error has more than one line:\n%s", o.stderr)
			}
			r.untouched(before)
			if _, err := os.Stat(r.file("report.json")); err == nil {
				t.Error("an interrupted run has written a report")
			}
		})
	}
}

// building waits until the generator of the first path runs, while other paths are not built yet.
func (p *process) building() {
	p.room.until("the first generator runs", func(all []descendant) bool {
		return slices.ContainsFunc(all, func(d descendant) bool { return strings.HasPrefix(d.cmdline, generator) })
	})
}

func TestKilled(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	p := r.start(long...)
	p.measuring()
	pid := p.cmd.Process.Pid
	p.signal(syscall.SIGKILL)
	p.wait()
	r.until("no process is left", func(all []descendant) bool { return len(all) == 0 })

	killed := r.snapshot()
	left := topmost(killed.Cgroups)
	if len(left) == 0 {
		t.Error("no cgroup was left, so that the test of its removal has no effect")
	}
	for _, name := range left {
		if !strings.HasPrefix(name, fmt.Sprintf("fairlead-lab-%d-", pid)) {
			t.Errorf("cgroup %s does not have the mark of process %d", name, pid)
		}
	}
	killed.Cgroups = before.Cgroups
	if diff := cmp.Diff(before, killed); diff != "" {
		t.Errorf("objects other than cgroups were left (+):\n%s", diff)
	}

	o := r.run(append([]string{"lab", "run", "host", "--workload", "tcp-rr"}, short...)...)
	for _, name := range left {
		o.expect(t, 0, []string{"removed " + name})
	}
	r.untouched(before)
}

// topmost returns the names of the cgroups that are not inside another.
func topmost(cgroups []string) []string {
	var names []string
	for _, path := range cgroups {
		if name := strings.TrimPrefix(path, "./"); filepath.Base(name) == name {
			names = append(names, name)
		}
	}
	return names
}

// TestConcurrentRuns checks that a run neither removes the cgroups of another run nor is disturbed
// by it.
func TestConcurrentRuns(t *testing.T) {
	r := newRoom(t)
	other := r.start(long...)
	other.measuring()
	alive := r.snapshot().Cgroups
	o := r.undisturbed("n.json", append([]string{"lab", "run", "nat", "--workload", "tcp-rr"}, short...)...)
	o.expect(t, 0, nil)
	if strings.Contains(o.stderr, "removed") {
		t.Errorf("the other run's cgroups were removed: %s", o.stderr)
	}
	if after := r.snapshot().Cgroups; !slices.Equal(after, alive) {
		t.Errorf("the other run's cgroups are %v, were %v", after, alive)
	}
	other.signal(syscall.SIGINT)
	other.wait().expect(t, 130, nil)
}
