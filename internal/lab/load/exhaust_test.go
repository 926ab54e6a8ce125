package load_test

import (
	"testing"
	"time"

	"fairlead/internal/lab/load"
)

// TestAttempts: a number of connections is attempted once each. All of them are counted as completed or failed, also
// those for which there was no time.
func TestAttempts(t *testing.T) {
	p := newPair(t, newNetns(t))
	target := p.listen(t, v4)
	for name, c := range map[string]struct {
		attempts int
		window   time.Duration
		reason   string
	}{
		"all are made":      {50, time.Minute, ""},
		"the time is short": {60_000, time.Millisecond, "not attempted within 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := load.Run(t.Context(), p.client, p.server, target, load.Spec{Workload: load.TCPCRR,
				Close: load.ClientFIN, Attempts: c.attempts, Duration: c.window}, load.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			got := m.Metrics()
			if got["completed_connects"]+got["failed_connects"] != float64(c.attempts) ||
				m.Reasons[c.reason] != int(got["failed_connects"]) {
				t.Errorf("%v completed, %v failed: %v", got["completed_connects"], got["failed_connects"], m.Reasons)
			}
		})
	}
	for _, s := range []load.Spec{{Workload: load.TCPRR, Attempts: 1}, {Workload: load.TCPCRR, Attempts: 1, Streams: 2},
		{Workload: load.TCPCRR, Attempts: 1, Count: 1}, {Workload: load.TCPCRR, Attempts: 1 << 16}} {
		s.Duration = time.Second
		if _, err := s.Normal(); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}
