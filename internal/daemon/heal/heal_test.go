package heal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/plan"
)

// TestConflict repairs an object so often that the next repair has to wait.
func TestConflict(t *testing.T) {
	c := heal.Conflicts{}
	link := plan.Plan{plan.Sysctl{Name: "net.ipv4.ip_forward", Value: "1"}}
	key := link[0].Key()
	for i := 1; ; i++ {
		if part := c.Due(link, link); len(part) != 1 {
			t.Fatalf("after %d repairs the object is not due", i-1)
		}
		events := c.Repaired(map[string]bool{key: true}, "")
		if len(events) == 0 {
			continue
		}
		if e := events[0]; i != 20 || e.Kind != api.Conflicting ||
			!strings.HasPrefix(e.Detail, "another program keeps changing "+key+": repaired 20 times") {
			t.Errorf("repair %d: %+v", i, e)
		}
		break
	}
	if part := c.Due(link, link); len(part) != 0 || c.Next() <= 0 {
		t.Errorf("during the wait: due %v, next in %s", part, c.Next())
	}
}

// TestBlockedIsReportedOnce reports an object that cannot be created once, until it was
// repaired.
func TestBlockedIsReportedOnce(t *testing.T) {
	c := heal.Conflicts{}
	step := &plan.StepError{Object: plan.Sysctl{Name: "net.ipv4.ip_forward", Value: "1"}, Err: errors.New("refused")}
	for i, want := range []bool{true, false} {
		if _, report := c.Blocked(step); report != want {
			t.Errorf("failure %d: report %v", i+1, report)
		}
	}
}

func TestRetry(t *testing.T) {
	var r heal.Retry
	if r.Due() || r.Waits() || r.Next(0) != 0 {
		t.Errorf("before a failure: %+v", r)
	}
	for i, first := range []bool{true, false} {
		if r.Failed() != first || !r.Waits() || r.Due() || r.Next(0) <= 0 {
			t.Errorf("failure %d: %+v", i+1, r)
		}
	}
	if r.Succeeded(); r.Next(0) != 0 || r.Next(7) != 7 {
		t.Errorf("after a success: %+v", r)
	}
}

// TestReportOfManyObjects reports the repair of a large network.
func TestReportOfManyObjects(t *testing.T) {
	var steps []plan.Op
	for i := range 62000 {
		steps = append(steps, plan.Op{Object: plan.Sysctl{Name: fmt.Sprint("net.ipv4.", i), Value: "1"}})
	}
	steps = append(steps, plan.Op{Object: plan.Link{Name: "fl-net"}})
	r := heal.ReportOf(steps, "", false)
	n := len(r.Events)
	if n != 102 || !strings.HasPrefix(r.Events[n-2].Object, "link ") || r.Events[n-1].Object != "sysctl" ||
		r.Events[n-1].Detail != "61900 more objects of this kind" || r.Kinds["sysctl"] != 62000 {
		t.Errorf("%d events, the last ones %+v, of %v", n, r.Events[max(0, n-2):], r.Kinds)
	}
}

// BenchmarkRepaired records the repair of all entries of an overlay with 1,000 hosts.
func BenchmarkRepaired(b *testing.B) {
	keys := map[string]bool{}
	for i := range 62000 {
		keys[fmt.Sprint("neighbor fl-net ", i)] = true
	}
	for b.Loop() {
		if events := (heal.Conflicts{}).Repaired(keys, ""); len(events) > 0 {
			b.Fatal(events)
		}
	}
}
