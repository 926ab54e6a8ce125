package stored

import (
	"fmt"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// TestCheckEditOfMany compares many objects, which happens under the daemon's mutex: twice as many objects cost about
// twice as much.
func TestCheckEditOfMany(t *testing.T) {
	cost := func(count int) float64 {
		var w model.Desired
		for i := range count {
			w.Networks = append(w.Networks, model.Network{Name: fmt.Sprintf("net%d", i), Driver: model.DriverBridge})
		}
		now, _ := Editable(w)
		e := &api.Edit{Networks: now.Networks}
		return testing.AllocsPerRun(1, func() {
			if err := CheckEdit(w, e); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := cost(100), cost(200); many > 3*few {
		t.Errorf("CheckEdit allocates %.0f times for 100 objects, and %.0f times for 200", few, many)
	}
}
