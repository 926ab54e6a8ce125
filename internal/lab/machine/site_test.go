package machine

import (
	"strings"
	"testing"

	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/visitor"
)

// TestVisitsAreLimited: an agent accepts only orders that a workload makes.
func TestVisitsAreLimited(t *testing.T) {
	s, _ := suite.Find("site")
	w, _ := s.FindWorkload("visits-5")
	good := visitor.Order{Pages: w.Visits.Pages, Plan: w.Visits.Plan}
	good.Plan.Count = 100
	if err := checkVisits(good); err != nil {
		t.Errorf("the order of a workload: %v", err)
	}
	for want, change := range map[string]func(*visitor.Order){
		"at most 10000":     func(o *visitor.Order) { o.Plan.Count = MaxVisits + 1 },
		"want at most 3600": func(o *visitor.Order) { o.Plan.Rate = 1e-300 },
		"more than 0":       func(o *visitor.Order) { o.Plan.Rate = -1 },
		"0 pages":           func(o *visitor.Order) { o.Pages = 0 },
		"1000000 pages":     func(o *visitor.Order) { o.Pages = 1_000_000 },
	} {
		o := good
		change(&o)
		if err := checkVisits(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
