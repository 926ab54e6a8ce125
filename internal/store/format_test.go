package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/store"

	"go.etcd.io/bbolt"
)

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

// TestOtherFormatsAreRefused checks that databases of another version are not changed, and that the error says what
// to do.
func TestOtherFormatsAreRefused(t *testing.T) {
	for format, says := range map[string]string{
		"5": "format 5 is newer than this program's 4: run the fairlead that wrote it, or a newer one",
		"3": "format 3 is older than this program's 4: run the fairlead that wrote it, or delete the file and its copy",
	} {
		at := places(t)
		if err := open(t, at).Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(at.State, "fairlead.db")
		writeEntries(t, path, "meta\tformat\t"+format+"\nnetworks\tweb\t{\"other\":1}\n")
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, try := range map[string]func() error{
			"open":    func() error { _, err := store.OpenFile(at); return err },
			"read":    func() error { _, err := store.ReadDesired(at); return err },
			"restore": func() error { _, err := store.Restore(at, false); return err },
		} {
			if err := try(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s format %s: %v", name, format, err)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
			t.Errorf("the file of format %s was changed: %v", format, err)
		}
	}
}
