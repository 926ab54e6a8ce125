package store_test

import (
	"errors"
	"slices"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/store"
)

// moved is the desired state after an attachment was kept or released.
func moved(keep bool) model.Desired {
	d := desired()
	d.Attachments[0].Keep, d.Attachments[1].Keep = keep, !keep
	return d
}

// TestKilledBetweenDatabases ends the process between the writes to both databases. Attachments that move from one
// to the other, and their publishes, are not lost.
func TestKilledBetweenDatabases(t *testing.T) {
	for name, end := range map[string]func(*store.File) error{
		"before the writes to boot.db": (*store.File).CloseBoot, "before the deletions": (*store.File).CloseLasting,
	} {
		for _, keep := range []bool{true, false} {
			at := places(t)
			f := open(t, at)
			if err := errors.Join(f.SaveDesired(moved(keep)), end(f)); err != nil {
				t.Fatal(err)
			}
			if err := f.SaveDesired(moved(!keep)); err == nil {
				t.Fatal("the write to a closed database succeeds")
			}
			if err := errors.Join(f.CloseLasting(), f.CloseBoot()); err != nil {
				t.Fatal(err)
			}
			f = open(t, at)
			d, err := f.Desired()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"kept", "left"} {
				is := func(a model.Attachment) bool { return a.Name == want }
				of := func(p model.Publish) bool { return p.Endpoint == want }
				if !slices.ContainsFunc(d.Attachments, is) || !slices.ContainsFunc(d.Publishes, of) ||
					len(d.Attachments) != 2 || len(d.Publishes) != 2 {
					t.Errorf("%s, keep %t: %+v", name, keep, d)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNetworkOutlivesItsAttachments ends the process while everything is deleted. A network is stored as long as an
// attachment to it.
func TestNetworkOutlivesItsAttachments(t *testing.T) {
	at := places(t)
	f := open(t, at)
	if err := errors.Join(f.SaveDesired(desired()), f.CloseBoot()); err != nil {
		t.Fatal(err)
	}
	if err := f.SaveDesired(model.Desired{}); err == nil {
		t.Fatal("the write to a closed database succeeds")
	}
	if err := f.CloseLasting(); err != nil {
		t.Fatal(err)
	}
	d, err := store.ReadDesired(at)
	if err != nil || len(d.Attachments) != 2 || len(d.Networks) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
