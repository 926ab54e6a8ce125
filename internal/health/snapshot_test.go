package health

import (
	"strings"
	"testing"
	"time"

	"fairlead/internal/model"
)

// TestImport checks that servers start in the state of their data planes, with a
// snapshot of any age or without one.
func TestImport(t *testing.T) {
	sorry := model.VirtualService{Sorry: farmReals(9)[8].At(80)}
	for _, c := range []struct {
		name    string
		service model.VirtualService
		// noted are the states in the snapshot, and inUse those in the data planes,
		// before and after the import.
		noted, inUse string
	}{
		{"the snapshot is right", model.VirtualService{}, "up down up", "up down up"},
		{"one went down after the snapshot", model.VirtualService{}, "up up up", "up down up"},
		{"one came up after the snapshot", model.VirtualService{}, "up down up", "up up up"},
		{"all went down after the snapshot", model.VirtualService{}, "up up up", "down down down"},
		{"no snapshot", model.VirtualService{}, "- - -", "up down up"},
		{"a server that was added after the snapshot", model.VirtualService{}, "up up -", "up up down"},
		{"the sorry server was used", sorry, "up up up", "down down down sorry"},
		{"the sorry server was used without a quorum", model.VirtualService{Sorry: sorry.Sorry, Quorum: 2}, "up up up",
			"down draining down sorry"},
		{"a panic", model.VirtualService{Panic: 50}, "down up down", "up up up"},
		{"a panic that began after the snapshot", model.VirtualService{Panic: 50}, "up up down", "up up up"},
		{"no checks", model.VirtualService{Check: model.Check{Passive: true}}, "up up up", "up down up"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			services := farmService("web", 3)
			services.Panic, services.Sorry, services.Quorum = c.service.Panic, c.service.Sorry, c.service.Quorum
			if c.service.Check.Passive {
				services.Check = c.service.Check
			}
			asked := services.Clone()
			var notes Snapshot
			for i, word := range strings.Fields(c.noted) {
				if word != "-" {
					notes = append(notes, Remembered{"web", services.Reals[i].At(0), services.Reals[i].Endpoint,
						Record{Up: word == "up", Known: true}})
				}
			}
			for i, word := range strings.Fields(c.inUse) {
				if word == "sorry" {
					services.Reals = append(services.Reals,
						model.RealServer{Address: services.Sorry.Addr(), Port: services.Sorry.Port(), Weight: 1})
				} else if word != "up" {
					services.Reals[i].State = model.RealState(word)
				}
			}
			m := NewMonitor(Options{Means: Means{Container: (&farm{}).ask}})
			m.Import(notes, []model.VirtualService{services})
			for range 2 { // a service may be missing for a moment, after another failure
				if err := m.Set([]model.VirtualService{asked}); err != nil {
					t.Fatal(err)
				}
				if got, _ := m.Effective(asked); !got.Equal(services) {
					t.Errorf("the data planes had\n\t%+v\nand should have\n\t%+v", services.Reals, got.Reals)
				}
				if err := m.Set(nil); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestImportThenChecked checks that a server that was down is used again after its
// checks pass.
func TestImportThenChecked(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		asked := farmService("web", 2)
		services := asked.Clone()
		services.Reals[0].State = model.RealDown
		f.monitor.Import(nil, []model.VirtualService{services})
		f.mustSet(t, asked)
		time.Sleep(1500 * time.Millisecond)
		f.wantNotified(t, `1s web e1 "down"→"" 2 checks passed: as set`)
	})
}

// TestClockSetBack restores the record of a server that clients' failures took down, on a
// host whose clock was set back by a day since.
func TestClockSetBack(t *testing.T) {
	now := time.Now()
	stored := now.AddDate(0, 0, 1)
	r := Record{Known: true, Since: stored, Growing: stored, Window: stored, Ejected: stored, Ejections: 1,
		Until: stored.Add(shortestHold)}.at(now)
	for _, at := range []time.Time{r.Since, r.Growing, r.Window, r.Ejected} {
		if at.After(now) {
			t.Errorf("an event of the record is in the future: %+v", r)
		}
	}
	if !r.age(settings{}, now.Add(hold(1))) || !r.Up {
		t.Errorf("the server is not back: %+v", r)
	}
	if same := (Record{Since: now, Until: now.Add(time.Second)}); same.at(now) != same {
		t.Error("a record from before is changed")
	}
}
