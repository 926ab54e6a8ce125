package ebpf

import (
	"math"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"
)

// segment is a TCP segment of a connection.
type segment struct {
	inward   bool // whether the client sends it, not the endpoint
	flags    uint8
	seq, ack uint32
	payload  int
	kept     bool // whether the flow still exists after it
}

// connection sends segments between the client and the endpoint, and checks
// after each whether the flow still exists.
func (b *bench) connection(t *testing.T, name string, segments []segment) {
	t.Helper()
	b.forget(t)
	for i, s := range segments {
		p := first(false, client4, ap("192.0.2.1:8080"))
		p.flags, p.seq, p.ack, p.payload = s.flags, s.seq, s.ack, make([]byte, s.payload)
		if s.inward {
			b.mustMap(t, name, Uplink, b.up, p.frame())
		} else {
			p.src, p.dst = ap("10.9.0.2:80"), client4
			b.mustMap(t, name, Sandbox, b.web, p.frame())
		}
		if kept := len(b.flows(t)) == 1; kept != s.kept {
			t.Errorf("%s: the flow exists after segment %d: %t, want %t", name, i, kept, s.kept)
		}
	}
}

// opening are the segments that open a connection.
var opening = []segment{
	{true, syn, 1000, 0, 0, true},
	{false, syn | ack, 5000, 1001, 0, true},
	{true, ack, 1001, 5001, 100, true},
	{false, ack, 5001, 1101, 200, true},
	{true, ack, 1101, 5201, 0, true},
}

func after(before []segment, more ...segment) []segment {
	return append(append([]segment{}, before...), more...)
}

func TestLifeOfConnections(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	half := after(opening, segment{false, fin | ack, 5201, 1101, 0, true}, segment{true, ack, 1101, 5202, 0, true})
	for name, segments := range map[string][]segment{
		"opened":  opening,
		"refused": {{true, syn, 1000, 0, 0, true}, {false, rst | ack, 0, 1001, 0, false}},
		"half-closed": after(half, segment{true, psh | ack, 1101, 5202, 1000, true},
			segment{false, ack, 5202, 2101, 0, true}),
		"closed": after(half, segment{true, fin | ack, 1101, 5202, 0, true},
			segment{false, ack, 5202, 1102, 0, false}),
		"client first": after(opening, segment{true, fin | ack, 1101, 5201, 0, true},
			segment{false, fin | ack, 5201, 1102, 0, true}, segment{true, ack, 1102, 5202, 0, false}),
		"data with FIN": after(opening, segment{true, fin | psh | ack, 1101, 5201, 50, true},
			segment{false, ack, 5201, 1151, 0, true},
			segment{false, fin | ack, 5201, 1152, 0, true}, segment{true, ack, 1152, 5202, 0, false}),
		"FIN not yet acknowledged": after(half, segment{true, fin | ack, 1101, 5202, 10, true},
			segment{false, ack, 5202, 1101, 0, true}),
		"reset by the client":              after(opening, segment{true, rst, 1001, 0, 0, false}),
		"reset by the endpoint":            after(opening, segment{false, rst | ack, 5201, 1101, 0, false}),
		"reset beyond the expected number": after(opening, segment{true, rst, 1101, 0, 0, true}),
		"reset with an old number":         after(opening, segment{true, rst, 1000, 0, 0, true}),
		"reset by the endpoint, outside the window": after(opening,
			segment{false, rst | ack, 5001 + 1<<20, 1101, 0, true}),
		"FIN with an old number": after(opening, segment{true, fin | ack, 900, 5201, 0, true},
			segment{false, fin | ack, 5201, 1101, 0, true}, segment{true, ack, 1101, 5202, 0, true}),
		"FIN beyond the expected number": after(half, segment{true, fin | ack, 1102, 5202, 100, true},
			segment{true, ack, 1101, 5202, 200, true}, segment{false, ack, 5202, 1301, 0, true}),
		"SYN that the endpoint resets": after(opening, segment{true, syn, 900000, 0, 0, true},
			segment{false, rst | ack, 0, 900001, 0, false}),
		"sequence numbers wrap": {{true, syn, math.MaxUint32, 0, 0, true},
			{false, syn | ack, math.MaxUint32, 0, 0, true},
			{true, fin | ack, 0, 0, 0, true}, {false, fin | ack, 0, 1, 0, true}, {true, ack, 1, 1, 0, false}},
		"flow begins within a connection": opening[2:],
		"port reused": after(half, segment{true, syn, 900000, 0, 0, true},
			segment{false, syn | ack, 70000, 900001, 0, true},
			segment{true, fin | ack, 900001, 70001, 0, true}, segment{false, ack, 70001, 900002, 9, true},
			segment{true, ack, 900002, 70010, 0, true}),
		"port reused and refused": after(half, segment{true, syn, 900000, 0, 0, true},
			segment{false, rst | ack, 0, 900001, 0, false}),
	} {
		b.connection(t, name, segments)
	}
}

// age sets the time of the only flow's last packet back by the given silence, and
// sets whether the flow is answered.
func (b *bench) age(t *testing.T, silent time.Duration, answered bool) {
	t.Helper()
	all := b.flows(t)
	if len(all) != 1 {
		t.Fatalf("%d flows, want one", len(all))
	}
	b.alter(t, all[0], func(f *bpf.FairleadFlow) {
		f.Seen -= uint64(silent)
		f.Tick--
		if f.Flags &^= flowAnswered; answered {
			f.Flags |= flowAnswered
		}
	})
}

// TestStaleFlows lets an endpoint send a packet after a long silence. Once the flow's
// timeout has passed, the packet is not a reply. Ten seconds before the timeout
// it still is; the ten seconds allow for a slow machine.
func TestStaleFlows(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	const day = 24 * time.Hour
	for _, c := range []struct {
		name     string
		p        packet
		answered bool
		limit    time.Duration
	}{
		{"UDP", first(true, client4, ap("192.0.2.1:5353")), false, 30 * time.Second},
		{"answered UDP", first(true, client4, ap("192.0.2.1:5353")), true, 120 * time.Second},
		{"TCP", first(false, client6, ap("[2001:db8:1::1]:8080")), false, 60 * time.Second},
		{"answered TCP", first(false, client6, ap("[2001:db8:1::1]:8080")), true, 5 * day},
	} {
		answer := b.begin(t, c.p).answer().frame()
		b.age(t, c.limit-10*time.Second, c.answered)
		b.mustMap(t, c.name, Sandbox, b.web, answer)
		b.age(t, c.limit+time.Second, c.answered)
		b.mustLeave(t, c.name, Sandbox, b.web, answer)
		b.forget(t)
	}
}

// TestStaleFlowGivesWay lets a client dial the second publish of a port after its flow
// to the first has expired. The endpoint sees the client's address without an alias.
func TestStaleFlowGivesWay(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	b.begin(t, first(true, client4, ap("192.0.2.1:5353")))
	b.age(t, time.Minute, false)
	if seen := b.begin(t, first(true, client4, ap("192.0.2.1:5454"))); seen.src != client4 {
		t.Errorf("the endpoint sees %s, want %s", seen.src, client4)
	}
	if n := len(b.flows(t)); n != 1 {
		t.Errorf("%d flows, want one", n)
	}
}

// TestResetNeedsExactAcknowledgements checks that a flow marked for a reset records
// each acknowledgement, because the ends ignore a reset with an old sequence number.
func TestResetNeedsExactAcknowledgements(t *testing.T) {
	b := newBench(t)
	b.publish(t, b.mapping(false, anyV4, 8080, 8080, 80, MappingReset))
	b.connection(t, "opened", opening)
	if got, want := b.flows(t)[0].Acknowledged, [2]uint32{5201, 1101}; got != want {
		t.Errorf("the flow's acknowledgements are %d, want %d", got, want)
	}
}
