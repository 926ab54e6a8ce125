package history

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"fairlead/internal/api"

	"github.com/google/go-cmp/cmp"
)

// test are three figures of the kinds.
var test = []Figure{{Key: "fill"}, {Key: "requests", Kind: Rate}, {Key: "latency", Kind: Mean, Of: "requests"}}

// at is a Recorder whose clock the test sets, in seconds.
type at struct {
	*Recorder
	clock float64
}

func recorder() *at {
	r := &at{Recorder: New(test)}
	r.now = func() time.Duration { return time.Duration(r.clock * float64(time.Second)) }
	return r
}

// sample adds a sample after the seconds. A value that is NaN is not known.
func (r *at) sample(after float64, values ...float64) {
	r.clock += after
	known := Values{}
	for i, v := range values {
		if !math.IsNaN(v) {
			known[test[i].Key] = v
		}
	}
	r.add(known)
}

// want compares the samples, as JSON: a gap is null.
func (r *at) want(t *testing.T, want string) {
	t.Helper()
	got, err := json.Marshal(r.History())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestFiguresOfCounters(t *testing.T) {
	r := recorder()
	r.want(t, `{"ages":[],"series":{}}`)
	r.sample(100, 0.5, 1000, 7)
	r.want(t, `{"ages":[0],"series":{"fill":[0.5]}}`)
	r.sample(10, 0.25, 1020, 8)
	r.sample(10, 0.25, 1020, 8) // no request, so no latency
	r.clock++
	r.want(t, `{"ages":[21,11,1],"series":{"fill":[0.5,0.25,0.25],"latency":[null,0.05,null],"requests":[null,2,0]}}`)
}

// TestCounterThatBeginsAgain: after a restart of its owner, a counter is less than before, or it is absent for a while.
func TestCounterThatBeginsAgain(t *testing.T) {
	r := recorder()
	r.sample(0, 0, 1e9, 1e6)
	r.sample(10, 0, 1e9+10, 1e6+1)
	r.sample(10, 0, 5, 1)
	r.sample(10, 0, math.NaN(), math.NaN())
	r.sample(10, 0, 1e9, 1e6)
	r.sample(10, 0, 1e9+20, 1e6+2)
	r.want(t, `{"ages":[50,40,30,20,10,0],"series":{"fill":[0,0,0,0,0,0],`+
		`"latency":[null,0.1,null,null,null,0.1],"requests":[null,1,null,null,null,2]}}`)
}

// TestSuspendedHost: what a counter counts in an hour is not the rate of ten seconds.
func TestSuspendedHost(t *testing.T) {
	r := recorder()
	r.sample(0, 0, 0, 0)
	r.sample(10, 0, 10, 1)
	r.sample(3000, 0, 1e6, 1e5)
	r.sample(10, 0, 1e6+30, 1e5+3)
	r.want(t, `{"ages":[3020,3010,10,0],"series":{"fill":[0,0,0,0],"latency":[null,0.1,null,0.1],`+
		`"requests":[null,1,null,3]}}`)
	r.clock += 3590
	r.want(t, `{"ages":[3600,3590],"series":{"fill":[0,0],"latency":[null,0.1],"requests":[null,3]}}`)
}

// TestLateSample: a sample that is late, but not missing, is shown with its own time.
func TestLateSample(t *testing.T) {
	r := recorder()
	r.sample(0, 0, 0, 0)
	r.sample(14, 0, 140, 0)
	r.sample(6, 0, 200, 0)
	r.want(t, `{"ages":[20,6,0],"series":{"fill":[0,0,0],"latency":[null,0,0],"requests":[null,10,10]}}`)
}

// TestClockSetBack: the clock that counts can be set back by a snapshot of the whole machine only.
func TestClockSetBack(t *testing.T) {
	r := recorder()
	r.sample(1000, 0, 0, 0)
	r.sample(10, 0, 10, 0)
	r.sample(-500, 0.1, 20, 0)
	r.sample(10, 0.2, 30, 0)
	r.want(t, `{"ages":[10,0],"series":{"fill":[0.1,0.2],"latency":[null,0],"requests":[null,1]}}`)
}

// TestNeverMoreThanAnHour: older samples are gone, and the memory does not grow.
func TestNeverMoreThanAnHour(t *testing.T) {
	r := recorder()
	n := 0.0
	for range 2 * Kept {
		n++
		r.sample(10, n, n, n)
	}
	if len(r.times) != Kept || len(r.values) != Kept*len(test) {
		t.Errorf("there is room for %d times and %d values", len(r.times), len(r.values))
	}
	h := r.History()
	if len(h.Ages) != Kept || h.Ages[0] != 3590 || h.Ages[Kept-1] != 0 {
		t.Errorf("%d samples from %v to %v", len(h.Ages), h.Ages[0], h.Ages[len(h.Ages)-1])
	}
	if got := h.Series["fill"]; got[0] != api.Figure(n-float64(Kept)+1) || got[Kept-1] != api.Figure(n) {
		t.Errorf("the levels are %v to %v, want the last %d until %v", got[0], got[Kept-1], Kept, n)
	}
}

// TestRun: the first sample is taken at once, and the last one not after the end.
func TestRun(t *testing.T) {
	r := New(test)
	ctx, cancel := context.WithCancel(t.Context())
	first, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx, func(ctx context.Context) Values {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("a reading has no time limit")
			}
			defer close(first) // a second reading would panic
			return nil
		})
	}()
	<-first
	cancel()
	<-ended
	if n := len(r.History().Ages); n > 1 {
		t.Errorf("%d samples", n)
	}
}

// TestFiguresInJSON: an unknown figure survives.
func TestFiguresInJSON(t *testing.T) {
	text, err := json.Marshal([]api.Figure{1.23456, 0, 12345678, api.Unknown(), api.Figure(math.Inf(1))})
	if err != nil || string(text) != "[1.235,0,1.235e+07,null,null]" {
		t.Fatalf("%s, %v", text, err)
	}
	var back []api.Figure
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back[0] != 1.235 || back[3].Known() || !back[1].Known() {
		t.Error(back)
	}
}
