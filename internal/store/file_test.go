package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/boltfile"
	"fairlead/internal/model"
	"fairlead/internal/store"

	"go.etcd.io/bbolt"
)

func open(t *testing.T, at store.Places) *store.File {
	t.Helper()
	f, err := store.OpenFile(at)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func places(t *testing.T) store.Places { return store.Places{State: t.TempDir(), Run: t.TempDir()} }

// reopen closes the file and opens it again, as the next process does.
func reopen(t *testing.T, f *store.File, at store.Places) *store.File {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, at)
}

func TestNextProcessFindsAll(t *testing.T) {
	at := places(t)
	f := open(t, at)
	if err := errors.Join(f.Save(record()), f.SaveDesired(desired())); err != nil {
		t.Fatal(err)
	}
	f = reopen(t, f, at)
	if r, err := f.Load(); err != nil || !reflect.DeepEqual(r, record()) {
		t.Errorf("record: %+v, %v", r, err)
	}
	if w, err := f.Desired(); err != nil || !reflect.DeepEqual(w, desired()) {
		t.Errorf("desired state: %+v, %v", w, err)
	}

	// The files follow changes and deletions.
	changed, fewer := record(), desired()
	changed.Settings[0].Before, changed.Applied.Publishes, changed.Leases = "1", nil, nil
	fewer.Attachments, fewer.Publishes = fewer.Attachments[:1], fewer.Publishes[:1]
	fewer.Attachments[0].Keep = false
	if err := errors.Join(f.Save(changed), f.SaveDesired(fewer)); err != nil {
		t.Fatal(err)
	}
	f = reopen(t, f, at)
	defer f.Close()
	if r, err := f.Load(); err != nil || !reflect.DeepEqual(r, changed) {
		t.Errorf("changed record: %+v, %v", r, err)
	}
	if w, err := f.Desired(); err != nil || !reflect.DeepEqual(w, fewer) {
		t.Errorf("changed desired state: %+v, %v", w, err)
	}
}

// TestAnotherBoot changes the stored boot ID, so that the files look as they do
// after a reboot.
func TestAnotherBoot(t *testing.T) {
	at := places(t)
	f := open(t, at)
	if err := errors.Join(f.Save(record()), f.SaveDesired(desired()), f.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(at.Run, "boot.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket([]byte("meta")).Put([]byte("boot"), []byte("another")), boltfile.Seal(tx, 4))
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	want := desired()
	want.Attachments, want.Publishes = want.Attachments[:1], want.Publishes[:1]
	want.Attachments[0].Namespace = ""
	f = open(t, at)
	defer func() { f.Close() }()
	for _, process := range []string{"first", "second"} {
		if r, err := f.Load(); err != nil || !reflect.DeepEqual(r, store.Record{}) {
			t.Errorf("kernel state from before the reboot remains: %+v, %v", r, err)
		}
		if w, err := f.Desired(); err != nil || !reflect.DeepEqual(w, want) {
			t.Errorf("desired state of the %s process: %+v, %v; want the attachments with Keep set", process, w, err)
		}
		f = reopen(t, f, at)
	}
}

func TestOneOwner(t *testing.T) {
	at := places(t)
	f := open(t, at)
	defer f.Close()
	_, err := store.OpenFile(at)
	var inUse *store.InUseError
	if !errors.As(err, &inUse) || inUse.PID != fmt.Sprint(os.Getpid()) {
		t.Errorf("open a second time: %v, want an InUseError with this process's id", err)
	}
}

// TestInvalidFile: a file that is not a database is not changed, and the error
// says what to do.
func TestInvalidFile(t *testing.T) {
	at := places(t)
	path, text := filepath.Join(at.State, "fairlead.db"), strings.Repeat("garbage ", 4<<10)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenFile(at); err == nil ||
		!strings.Contains(err.Error(), "fairlead.db: invalid database: restore a backup of the file, or move it") {
		t.Errorf("open a file that is not a database: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != text {
		t.Errorf("the file was changed: %v", err)
	}
}

// TestManyChanges saves states that need more than one database page.
func TestManyChanges(t *testing.T) {
	at := places(t)
	f := open(t, at)
	for _, n := range []int{300, 10, 200, 0, 5} {
		var w model.Desired
		for i := range n {
			w.Attachments = append(w.Attachments,
				model.Attachment{Endpoint: model.Endpoint{Name: fmt.Sprintf("box%03d", i)}, Keep: i%2 == 0,
					Ref: fmt.Sprint(n)})
		}
		if err := f.SaveDesired(w); err != nil {
			t.Fatal(err)
		}
		f = reopen(t, f, at)
		got, err := f.Desired()
		if err != nil || len(got.Attachments) != n {
			t.Fatalf("%d attachments, %v; want %d", len(got.Attachments), err, n)
		}
		for _, a := range got.Attachments {
			if a.Ref != fmt.Sprint(n) {
				t.Errorf("%+v is not from the state with %d attachments", a, n)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNothingStored checks that Close removes both files and their copies if nothing is
// stored, and that it removes none if something is.
func TestNothingStored(t *testing.T) {
	at := places(t)
	left := func() (names []string) {
		for _, dir := range []string{at.State, at.Run} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				names = append(names, e.Name())
			}
		}
		return names
	}
	f := open(t, at)
	if err := errors.Join(f.Save(record()), f.SaveDesired(desired()), f.Save(store.Record{}),
		f.SaveDesired(model.Desired{}), f.Close()); err != nil {
		t.Fatal(err)
	}
	if names := left(); len(names) > 0 {
		t.Errorf("nothing is stored, but these files remain: %v", names)
	}
	for name, put := range map[string]func(*store.File) error{
		"a record": func(f *store.File) error { return f.Save(record()) },
		"desired":  func(f *store.File) error { return f.SaveDesired(desired()) },
		"a note":   func(f *store.File) error { return f.Passing().Put(map[string]any{"a": 1}) },
	} {
		at = places(t)
		f := open(t, at)
		if err := errors.Join(put(f), f.Close()); err != nil {
			t.Fatal(err)
		}
		want := []string{"fairlead.db", "fairlead.db.copy", "boot.db", "boot.db.copy"}
		if names := left(); !slices.Equal(names, want) {
			t.Errorf("with %s stored, the files are %v, want %v", name, names, want)
		}
	}
}

// TestStoredByAnotherVersion checks that entries that this version does not know are
// not lost.
func TestStoredByAnotherVersion(t *testing.T) {
	at := places(t)
	path := filepath.Join(at.State, "fairlead.db")
	db, err := boltfile.Open(path, boltfile.Options{Format: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(boltfile.Update(db, func(tx *bbolt.Tx) error {
		return boltfile.Put(tx, []byte("of the future"), []byte("key"), []byte("value"))
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := open(t, at).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestRemovedWhileOpened checks a process that waits for the files while their owner
// removes them: it creates new files, and does not write to the removed ones.
func TestRemovedWhileOpened(t *testing.T) {
	at := places(t)
	for range 10 {
		first := open(t, at)
		opened := make(chan *store.File)
		go func() {
			f, err := store.OpenFile(at)
			if err != nil {
				t.Error(err)
			}
			opened <- f
		}()
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := <-opened
		if second == nil {
			return
		}
		if err := second.Save(record()); err != nil {
			t.Fatal(err)
		}
		second = reopen(t, second, at)
		if r, err := second.Load(); err != nil || !reflect.DeepEqual(r, record()) {
			t.Fatalf("the record of the second process is %+v, %v", r, err)
		}
		if err := errors.Join(second.Save(store.Record{}), second.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
