package virtual

import (
	"slices"
	"testing"
	"time"

	"fairlead/internal/lab/failover"
)

// at returns a time, in milliseconds.
func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

// answering returns the answers of a host that answers from one time to another.
func answering(mac string, from, to int) (log []Answer) {
	for ms := from; ms <= to; ms += 5 {
		log = append(log, Answer{at(ms), mac})
	}
	return log
}

func TestOverlapOfTwoHosts(t *testing.T) {
	for name, c := range map[string]struct {
		logs [][]Answer
		want time.Duration
	}{
		"one after the other": {[][]Answer{answering("a", 0, 100), answering("b", 150, 300)}, 0},
		"at the same time": {[][]Answer{answering("a", 0, 200), answering("b", 150, 300)},
			50 * time.Millisecond},
		"an announcement": {[][]Answer{answering("a", 0, 200), {{at(100), "b"}}}, 0},
		"a question without answer": {[][]Answer{answering("a", 0, 100), answering("a", 110, 200),
			answering("b", 90, 120)}, 30 * time.Millisecond},
		"a pause": {[][]Answer{answering("a", 0, 100), answering("a", 200, 300), answering("b", 110, 190)}, 0},
		"three hosts count only once": {[][]Answer{answering("a", 0, 100), answering("b", 0, 100),
			answering("c", 0, 100)}, 100 * time.Millisecond},
	} {
		var log []Answer
		for _, l := range c.logs {
			log = append(log, l...)
		}
		slices.SortFunc(log, func(a, b Answer) int { return a.At.Compare(b.At) })
		if got := overlap(log); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestOutcomeOfAKilledHolder(t *testing.T) {
	request := func(start, took int, by, err string) failover.Request {
		ms := int64(time.Millisecond)
		return failover.Request{Start: int64(start) * ms, Took: int64(took) * ms, By: by, Err: err}
	}
	o := Judge([]failover.Request{
		request(900, 1, "a", ""), request(990, 20, "a", ""), // in progress at the event
		request(1100, 2000, "", "dial: no answer"), request(1200, 1001, "b", ""), request(1500, 2, "b", ""),
	}, append(answering("a", 0, 1000), answering("b", 1500, 1600)...), "a", at(1000))
	if !o.Ended || o.Moved != 502*time.Millisecond || o.Attempts != 4 || o.Failed != 2 || o.Early != 0 ||
		o.Slowest != 1001*time.Millisecond || o.Overlap != 0 || o.Errors[tooLate] != 1 {
		t.Errorf("%+v", o)
	}
}
