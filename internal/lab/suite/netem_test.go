package suite

import (
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

func TestParseNetem(t *testing.T) {
	for text, want := range map[string]result.Netem{
		"delay=5ms":                    {Delay: 0.005},
		"delay=5ms,jitter=1ms":         {Delay: 0.005, Jitter: 0.001},
		"loss=0.1%, rate=1gbit":        {Loss: 0.001, Rate: 1e9},
		"rate=2.5Mbit,limit=100":       {Rate: 2.5e6, Limit: 100},
		"delay=200us,loss=50%":         {Delay: 0.0002, Loss: 0.5},
		"rate=500kbit":                 {Rate: 500e3},
		"rate=5000bit,delay=1s":        {Rate: 5000, Delay: 1},
		"delay=1ms,jitter=1ms,loss=0%": {Delay: 0.001, Jitter: 0.001},
	} {
		got, err := ParseNetem(text)
		if err != nil || *got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
			continue
		}
		if again, err := ParseNetem(got.String()); err != nil || *again != want {
			t.Errorf("%s is written as %s: %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"delay": "want conditions like", "delay=": "want conditions like", "delay=5": "a time with its unit",
		"loss=0.1": "a percentage", "loss=51%": "0 to 50 %", "loss=-1%": "0 to 50 %", "loss=NaN%": "0 to 50 %",
		"rate=1": "a rate with its unit", "rate=0.5kbit": "1kbit to 1000gbit", "rate=-1gbit": "1kbit to 1000gbit",
		"delay=2s": "0 to 1 s", "delay=-1ms": "0 to 1 s", "jitter=1ms": "0 to the delay",
		"delay=1ms,delay=2ms": "it is given twice", "latency=1ms": "there is no such condition",
		"limit=0":   "of packets",
		"delay=0ms": "no condition is set", ",": "want conditions like",
	} {
		if got, err := ParseNetem(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want an error with %q", text, got, err, want)
		}
	}
	if got, err := ParseNetem(""); got != nil || err != nil {
		t.Errorf("no conditions: %v, %v", got, err)
	}
}

// TestNetemNeedsTheWire: conditions of the wire are refused for other clients.
func TestNetemNeedsTheWire(t *testing.T) {
	s, _ := Find("modes")
	s.Netem = &result.Netem{Delay: 0.001}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "--client remote") {
		t.Errorf("clients %v: %v", s.Clients, err)
	}
	s.Clients = []result.Client{result.Remote}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	site, _ := Find("site")
	site.Netem = s.Netem
	if err := site.Check(); err == nil || !strings.Contains(err.Error(), "a web site does not have") {
		t.Errorf("the suite site: %v", err)
	}
}
