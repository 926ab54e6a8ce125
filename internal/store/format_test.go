package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/boltfile"
	"fairlead/internal/model"
	"fairlead/internal/store"

	"go.etcd.io/bbolt"
)

// oldDatabases creates databases as the last version with format 1 wrote them. Two additional entries have
// the keys that occur only in attachments of a container engine.
func oldDatabases(t *testing.T) store.Places {
	t.Helper()
	return databasesOf(t, "format1", "attachments\tdocker-1\t{\"name\":\"docker-1\",\"network\":\"web\",\"handed\":\"fv-1\"}\n"+
		"attachments\tdocker-2\t{\"name\":\"docker-2\",\"network\":\"none\",\"cgroup\":\"/sys/fs/cgroup/web\",\"unlisted\":\"deny\",\"late\":true}\n")
}

// databasesOf creates databases of an older format: testdata lists the bucket, key and value of each entry. more
// lists additional entries of boot.db.
func databasesOf(t *testing.T, format, more string) store.Places {
	t.Helper()
	at := places(t)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for path, more := range map[string]string{filepath.Join(at.State, "fairlead.db"): "",
		filepath.Join(at.Run, "boot.db"): more} {
		name := format + "-" + strings.TrimSuffix(filepath.Base(path), ".db") + ".txt"
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		entries := string(text) + more
		writeEntries(t, path, strings.ReplaceAll(entries, "88bee996-3715-4191-93ea-768e38f11faa",
			strings.TrimSpace(string(boot))))
	}
	return at
}

func writeEntries(t *testing.T, path, entries string) {
	t.Helper()
	inDatabase(t, path, func(tx *bbolt.Tx) error {
		for entry := range strings.Lines(entries) {
			field := strings.Split(strings.TrimSuffix(entry, "\n"), "\t")
			b, err := tx.CreateBucketIfNotExists([]byte(field[0]))
			if err != nil {
				return err
			}
			if err := b.Put([]byte(field[1]), []byte(field[2])); err != nil {
				return err
			}
		}
		return nil
	})
}

func inDatabase(t *testing.T, path string, do func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(do); err != nil {
		t.Fatal(err)
	}
}

func attachmentOf(t *testing.T, d model.Desired, name string) model.Attachment {
	t.Helper()
	for _, a := range d.Attachments {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("no attachment %s in %+v", name, d.Attachments)
	return model.Attachment{}
}

// TestFormat1IsMigrated opens databases of format 1 and checks that every value keeps
// its meaning, also after the next start and for a reader that writes nothing.
func TestFormat1IsMigrated(t *testing.T) {
	at := oldDatabases(t)
	read, err := store.ReadDesired(at)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, at)
	for range 2 {
		d, err := f.Desired()
		if err != nil || !reflect.DeepEqual(d, read) {
			t.Fatalf("desired state: %+v, %v, want as read without writing: %+v", d, err, read)
		}
		if len(d.Networks) != 3 || len(d.Attachments) != 5 || len(d.Publishes) != 4 || len(d.Services) != 1 {
			t.Errorf("desired state: %+v", d)
		}
		if a := attachmentOf(t, d, "dev"); !a.Private || !a.Keep {
			t.Errorf("attachment of a private network: %+v", a)
		}
		if a := attachmentOf(t, d, "docker-1"); a.HostInterface != "fv-1" {
			t.Errorf("attachment whose link an engine moves: %+v", a)
		}
		if a := attachmentOf(t, d, "docker-2"); a.Unpublished != model.UnpublishedDeny || !a.NeedsRestart {
			t.Errorf("workload: %+v", a)
		}
		r, err := f.Load()
		if err != nil || len(r.Devices) != 1 || len(r.Settings) != 5 || len(r.Leases) != 3 {
			t.Errorf("record: %+v, %v", r, err)
		}
		for _, services := range [][]model.VirtualService{d.Services, r.Applied.Services} {
			if len(services) != 1 || services[0].SourceNAT != model.SourceNATMasqueraded {
				t.Errorf("services: %+v", services)
			}
		}
		f = reopen(t, f, at)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestFormat2IsMigrated opens a database of format 2, whose buckets of the applied state
// had other names, and checks that a record saved afterwards replaces the old one.
func TestFormat2IsMigrated(t *testing.T) {
	at := places(t)
	f := open(t, at)
	if err := f.Save(record()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	inDatabase(t, filepath.Join(at.Run, "boot.db"), asFormat2)
	f = open(t, at)
	if r, err := f.Load(); err != nil || !reflect.DeepEqual(r, record()) {
		t.Errorf("record of format 2: %+v, %v", r, err)
	}
	changed := record()
	changed.Applied.Networks, changed.Applied.Endpoints, changed.Applied.Publishes = nil, nil, nil
	if err := f.Save(changed); err != nil {
		t.Fatal(err)
	}
	f = reopen(t, f, at)
	defer f.Close()
	if r, err := f.Load(); err != nil || !reflect.DeepEqual(r, changed) {
		t.Errorf("changed record: %+v, %v", r, err)
	}
}

// TestFormat3IsMigrated opens databases as commit 496c9123 wrote them, without checksums. Nothing is lost, also
// for a reader that writes nothing.
func TestFormat3IsMigrated(t *testing.T) {
	at := databasesOf(t, "format3", "")
	read, err := store.ReadDesired(at)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, at)
	for range 2 {
		is := load(t, f)
		if d := is.desired; !reflect.DeepEqual(d, read) || len(d.Networks) != 1 || len(d.Attachments) != 14 ||
			len(d.Publishes) != 14 || len(d.Services) != 1 {
			t.Errorf("desired state: %+v, want as read without writing: %+v", d, read)
		}
		if r := is.record; len(r.Applied.Endpoints) != 13 || len(r.Applied.Publishes) != 13 || len(r.Leases) != 13 ||
			len(r.Settings) != 1 || len(r.Devices) != 1 || len(r.Inside) != 1 || len(r.Virtual) != 1 {
			t.Errorf("record: %+v", r)
		}
		if is.notes != "map[a:1] map[b:2]" {
			t.Errorf("notes: %s", is.notes)
		}
		f = reopen(t, f, at)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	inDatabase(t, filepath.Join(at.State, "fairlead.db"), func(tx *bbolt.Tx) error {
		_, err := boltfile.Content([]byte("networks"), []byte("lan"), tx.Bucket([]byte("networks")).Get([]byte("lan")))
		return err
	})
}

// TestDamagedOldFormat: a value without a checksum that cannot be parsed is a damage, and the file stays as it is.
func TestDamagedOldFormat(t *testing.T) {
	at := databasesOf(t, "format3", "settings\tx\t{\"Name\":\n")
	path := filepath.Join(at.Run, "boot.db")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := new(store.DamagedError)
	if _, err := store.OpenFile(at); !errors.As(err, &damaged) || damaged.Path != path ||
		!strings.Contains(err.Error(), "settings x") {
		t.Errorf("open: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
		t.Errorf("the file was changed: %v", err)
	}
}

// asFormat2 removes the checksums, and renames the buckets of the applied state to their names in format 2.
func asFormat2(tx *bbolt.Tx) error {
	if err := withoutChecksums(tx); err != nil {
		return err
	}
	for _, kind := range []string{"networks", "endpoints", "publishes", "services"} {
		now := []byte("applied " + kind)
		old, err := tx.CreateBucket([]byte("desired " + kind))
		if err != nil {
			return err
		}
		if err := errors.Join(tx.Bucket(now).ForEach(old.Put), tx.DeleteBucket(now)); err != nil {
			return err
		}
	}
	return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("2"))
}

// withoutChecksums makes the values of a database those of an older format.
func withoutChecksums(tx *bbolt.Tx) error {
	err := tx.ForEach(func(table []byte, b *bbolt.Bucket) error {
		values := map[string][]byte{}
		err := b.ForEach(func(key, value []byte) (err error) {
			if string(table) != boltfile.Meta {
				values[string(key)], err = boltfile.Content(table, key, value)
			}
			return err
		})
		for key, content := range values {
			err = errors.Join(err, b.Put([]byte(key), content))
		}
		return err
	})
	return errors.Join(err, tx.Bucket([]byte(boltfile.Meta)).Delete([]byte("contents")))
}

// TestNewerFormatIsRefused checks that databases of a newer version are not changed.
func TestNewerFormatIsRefused(t *testing.T) {
	at := places(t)
	if err := open(t, at).Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(at.State, "fairlead.db")
	writeEntries(t, path, "meta\tformat\t5\nnetworks\tweb\t{\"newer\":1}\n")
	for name, try := range map[string]func() error{
		"open": func() error { _, err := store.OpenFile(at); return err },
		"read": func() error { _, err := store.ReadDesired(at); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), "format 5 is newer than this program's 4") {
			t.Errorf("%s: %v", name, err)
		}
	}
	inDatabase(t, path, func(tx *bbolt.Tx) error {
		if text := string(tx.Bucket([]byte("networks")).Get([]byte("web"))); text != `{"newer":1}` {
			return fmt.Errorf("the value is now %s", text)
		}
		return nil
	})
}
