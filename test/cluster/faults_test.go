package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/record"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/etcd"
	"fairlead/test/shell"
)

// faultHold is the hold time of the addresses.
const faultHold = 500 * time.Millisecond

// faulty is three hosts with virtual addresses, and an etcd, that get random faults.
type faulty struct {
	*lan
	*watcher
	r       *rand.Rand
	v4, v6  netip.Addr
	saved   []etcd.Copy
	counted map[string]int
	// decks have the faults of a list that come before any of them comes again.
	decks map[string][]fault
	// recorder has the transactions of the hosts.
	recorder *etcd.Recorder
	restored eras
}

// fault is something that fails, until the returned function is called.
type fault struct {
	name string
	do   func(f *faulty) (end func())
}

var stopped = fault{"the daemon is stopped", func(f *faulty) func() { return f.host().Pause() }}

// hostFaults are those of one host.
var hostFaults = []fault{
	{"the daemon is killed", func(f *faulty) func() { h := f.host(); h.Kill(); return h.Start }},
	stopped,
	{"a host is cut off from the others", func(f *faulty) func() { return f.cut(f.host(), true, true, f.others) }},
	{"a host gets nothing from the others", func(f *faulty) func() { return f.cut(f.host(), true, false, f.others) }},
	{"a host's packets to the others are lost", func(f *faulty) func() { return f.cut(f.host(), false, true, f.others) }},
	{"a host is cut off from etcd", func(f *faulty) func() { return f.cut(f.host(), true, true, f.members) }},
	{"a host gets nothing from etcd", func(f *faulty) func() { return f.cut(f.host(), true, false, f.members) }},
	{"a host's packets to etcd are lost", func(f *faulty) func() { return f.cut(f.host(), false, true, f.members) }},
	{"a host is cut off from all", func(f *faulty) func() { return f.cut(f.host(), true, true, f.all) }},
	{"a host gets nothing from all", func(f *faulty) func() { return f.cut(f.host(), true, false, f.all) }},
	{"a host's packets to all are lost", func(f *faulty) func() { return f.cut(f.host(), false, true, f.all) }},
}

// etcdFaults are those of etcd.
var etcdFaults = []fault{
	{"etcd's leader is killed", func(f *faulty) func() { m := f.etcd.Leader(); m.Kill(); return m.Start }},
	{"etcd's leader is stopped", func(f *faulty) func() { m := f.etcd.Leader(); m.Stop(); return m.Continue }},
	{"etcd is gone", func(f *faulty) func() {
		for _, m := range f.etcd.Members {
			m.Kill()
		}
		return func() {
			for _, m := range f.etcd.Members {
				m.Start()
			}
		}
	}},
	{"etcd is compacted", func(f *faulty) func() { f.etcd.Compact(); return func() {} }},
}

// host returns a host, mostly one that has an address. For the first fault it has one.
func (f *faulty) host() *host {
	for _, a := range []netip.Addr{f.v4, f.v6} {
		if n, _ := f.logs[a].last(); f.total() == 1 || f.r.IntN(3) > 0 {
			return f.hosts[n]
		}
	}
	return f.hosts[f.r.IntN(len(f.hosts))]
}

func (f *faulty) others(h *host) (all []string) {
	for i, o := range f.hosts {
		if o != h {
			all = append(all, fmt.Sprintf("192.0.2.%d", i+1))
		}
	}
	return all
}

func (f *faulty) members(*host) (all []string) {
	for _, m := range f.etcd.Members {
		all = append(all, m.Host)
	}
	return all
}

func (f *faulty) all(h *host) []string { return append(f.others(h), f.members(h)...) }

// cut drops a host's packets from some addresses, and to them.
func (f *faulty) cut(h *host, in, out bool, of func(*host) []string) func() {
	rules := "table inet cut {\n"
	for _, way := range []struct {
		cut         bool
		hook, field string
	}{{in, "input", "saddr"}, {out, "output", "daddr"}} {
		if !way.cut {
			continue
		}
		rules += fmt.Sprintf("chain %[1]s {\n type filter hook %[1]s priority raw\n", way.hook)
		for _, a := range of(h) {
			rules += fmt.Sprintf("ip %[1]s %[2]s drop\nip6 %[1]s 2001:db8::%[3]s drop\n", way.field, a, a[len("192.0.2."):])
		}
		rules += "}\n"
	}
	shell.Run(f.lan.T, h.ns.Do, "nft '"+rules+"}'")
	return func() { shell.Run(f.lan.T, h.ns.Do, "nft delete table inet cut") }
}

// some makes a random fault of a list. Each comes before any of them comes again.
func (f *faulty) some(list string, of []fault) func() {
	if len(f.decks[list]) == 0 {
		f.decks[list] = slices.Clone(of)
		f.r.Shuffle(len(of), func(i, j int) { f.decks[list][i], f.decks[list][j] = f.decks[list][j], f.decks[list][i] })
	}
	one := f.decks[list][0]
	f.decks[list] = f.decks[list][1:]
	f.counted[one.name]++
	return one.do(f)
}

// pause lets faults last for a number of hold times, and up to as many again.
func (f *faulty) pause(holds int) {
	least := time.Duration(holds) * faultHold
	time.Sleep(least + time.Duration(f.r.Int64N(int64(least))))
}

// step makes one fault or two, and waits until both addresses are held again.
func (f *faulty) step() {
	if f.total() > 0 && f.r.IntN(16) == 0 {
		f.restore()
		return
	}
	var ends []func()
	kind := f.r.IntN(3) // both, one of a host, one of etcd
	if f.total() == 0 {
		kind = 1
	}
	if kind != 2 {
		ends = append(ends, f.some("host", hostFaults))
	}
	if kind == 0 {
		time.Sleep(time.Duration(f.r.Int64N(int64(faultHold))))
	}
	if kind != 1 {
		ends = append(ends, f.some("etcd", etcdFaults))
	}
	f.pause(2)
	f.r.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	for _, end := range ends {
		end()
		time.Sleep(time.Duration(f.r.Int64N(int64(faultHold))))
	}
	f.held()
}

// restore replaces the data of etcd by an older copy, which an administrator accepts.
func (f *faulty) restore() {
	f.counted["etcd is restored from an old copy"]++
	begun := time.Now()
	f.etcd.Restore(f.saved[f.r.IntN(len(f.saved))])
	f.restored = append(f.restored, struct{ from, until time.Time }{begun, time.Now()})
	for _, h := range f.hosts {
		f.until(h.name+" is frozen", func() bool { return h.status().Etcd.Frozen != "" })
		h.Run("cluster", "accept")
	}
	f.held()
	f.saved = append(f.saved, f.etcd.Save())
}

// held waits until both addresses are held.
func (f *faulty) held() {
	for a, log := range f.logs {
		f.until(fmt.Sprintf("a host holds %s", a), func() bool { _, ok := log.last(); return ok })
	}
}

// TestFaults makes random faults while a log has each answer of each host for virtual addresses of
// both families. Two hosts never answer at the same time, and the hosts' transactions for each address are
// linearizable. FAIRLEAD_FAULTS is the number of faults,
// FAIRLEAD_FAULTS_SEED repeats their order.
//
// The rates of the hosts' clocks cannot differ here, because all namespaces have the kernel's clock:
// the simulation in package vip covers that.
func TestFaults(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FAIRLEAD_FAULTS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FAIRLEAD_FAULTS_SEED: %v", err)
		}
	}
	for i, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d members of etcd", members), func(t *testing.T) {
			count := 4
			if text := os.Getenv("FAIRLEAD_FAULTS"); text != "" {
				all, err := strconv.Atoi(text)
				if err != nil {
					t.Fatalf("FAIRLEAD_FAULTS: %v", err)
				}
				count = (all + i) / 2
			}
			f := newFaulty(t, members, seed)
			for f.total() < count {
				f.step()
			}
			f.close()
			f.report(seed)
			f.linearizable(record.Addresses)
		})
	}
}

func newFaulty(t *testing.T, members int, seed uint64) *faulty {
	t.Helper()
	f := &faulty{lan: newLANWith(t, members), r: rand.New(rand.NewPCG(seed, uint64(members))),
		v4: netip.MustParseAddr("192.0.2.10"), v6: netip.MustParseAddr("2001:db8::10"), counted: map[string]int{},
		// The first fault always needs the fence: the daemon of a holder cannot close the address.
		decks: map[string][]fault{"host": {stopped}}}
	client := f.connected(77)
	for i, ns := range []*netns.Namespace{f.hosts[0].ns, f.hosts[1].ns, f.hosts[2].ns, client} {
		number := i + 1
		if ns == client {
			number = 77
		}
		kerneltest.Run(t, ns, "ip", "addr", "add", fmt.Sprintf("2001:db8::%d/64", number), "dev", "eth0", "nodad")
	}
	f.recorder = f.etcd.Record()
	f.endpoints = f.recorder.Endpoints
	f.joined()
	for _, p := range []netip.Prefix{netip.PrefixFrom(f.v4, 24), netip.PrefixFrom(f.v6, 64)} {
		f.etcd.Members[0].Change("/fairlead/v1/default/addrs/"+p.Addr().String(), func([]byte) []byte {
			return record.Encode(record.Address{Prefix: p, Hold: faultHold})
		})
	}
	f.saved = append(f.saved, f.etcd.Save())
	f.watcher = watch(f.lan, client, f.v4, f.v6)
	for _, h := range f.hosts {
		f.until(h.name+" reaches etcd", func() bool { return h.status().Etcd.Connected })
	}
	f.held()
	return f
}

func (f *faulty) total() (n int) {
	for _, c := range f.counted {
		n += c
	}
	return n
}

// report judges the logs.
func (f *faulty) report(seed uint64) {
	t := f.lan.T
	var names []string
	for name, n := range f.counted {
		names = append(names, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(names)
	for a, log := range f.logs {
		moves, overlaps := judge(log.all)
		t.Logf("seed %d, address %s: %d faults, %d answers and accepted packets, %d moves; at most %s between questions",
			seed, a, f.total(), len(log.all), moves, f.slowest)
		for i, o := range overlaps {
			if i == 10 {
				t.Errorf("… and %d more", len(overlaps)-i)
				break
			}
			t.Errorf("seed %d, address %s: two hosts answer at the same time: %s", seed, a, o)
		}
	}
	t.Log(strings.Join(names, ", "))
}
