package boltfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/boltfile"

	"go.etcd.io/bbolt"
)

var options = boltfile.Options{Format: 2}

func open(t *testing.T, path string) *bbolt.DB {
	t.Helper()
	db, err := boltfile.Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// values returns the values that bbolt finds.
func values(t *testing.T, db *bbolt.DB) map[boltfile.Value]string {
	t.Helper()
	all := map[boltfile.Value]string{}
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(table []byte, b *bbolt.Bucket) error {
			if string(table) == boltfile.Meta {
				return nil
			}
			return b.ForEach(func(key, value []byte) error {
				content, err := boltfile.Content(table, key, value)
				all[boltfile.Value{Table: string(table), Key: string(key)}] = string(content)
				return err
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parsed returns the values that the parser finds.
func parsed(t *testing.T, path string) map[boltfile.Value]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := boltfile.Read(file, options); err != nil {
		t.Fatal(err)
	}
	all := map[boltfile.Value]string{}
	for at, content := range boltfile.Values(file) {
		all[at] = string(content)
	}
	return all
}

// change puts and deletes random values, some of which need several pages.
func change(random *rand.Rand, want map[boltfile.Value]string) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		for range random.IntN(40) {
			at := boltfile.Value{Table: fmt.Sprint("table ", random.IntN(4)), Key: fmt.Sprint("key ", random.IntN(400))}
			if random.IntN(4) == 0 {
				delete(want, at)
				if err := boltfile.Delete(tx, []byte(at.Table), []byte(at.Key)); err != nil {
					return err
				}
				continue
			}
			size := random.IntN(200)
			if random.IntN(30) == 0 {
				size = random.IntN(20000)
			}
			content := strings.Repeat(string(rune('a'+random.IntN(26))), size)
			want[at] = content
			if err := boltfile.Put(tx, []byte(at.Table), []byte(at.Key), []byte(content)); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestParserAgreesWithBbolt changes databases in random ways. The parser finds what bbolt finds, also if the file
// has a list of its free pages, as those of older versions have.
func TestParserAgreesWithBbolt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for round := range 20 {
		path := filepath.Join(t.TempDir(), "db")
		want := map[boltfile.Value]string{}
		for range 1 + random.IntN(30) {
			db := open(t, path)
			if err := boltfile.Update(db, change(random, want)); err != nil {
				t.Fatal(err)
			}
			if is := values(t, db); !maps.Equal(is, want) {
				t.Fatalf("round %d: bbolt has %d values, want %d", round, len(is), len(want))
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if round%2 == 0 {
				writeFreelist(t, path)
			}
			if is := parsed(t, path); !maps.Equal(is, want) {
				t.Fatalf("round %d: the parser has %d values, want %d", round, len(is), len(want))
			}
		}
	}
}

// writeFreelist makes the file one with a list of its free pages.
func writeFreelist(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = boltfile.Update(db, func(*bbolt.Tx) error { return nil })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestInterruptedTransaction writes any part of a transaction's pages, but not its meta page, as a power loss does.
// It is no damage: the file has what the transaction before has stored.
func TestInterruptedTransaction(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	path := filepath.Join(t.TempDir(), "db")
	want := map[boltfile.Value]string{}
	size := os.Getpagesize()
	for range 60 {
		before, _ := os.ReadFile(path) // the first one does not exist
		was := maps.Clone(want)
		db := open(t, path)
		if err := errors.Join(boltfile.Update(db, change(random, want)), db.Close()); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if before == nil {
			continue
		}
		cut := append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
		for page := 2; page < len(after)/size; page++ {
			if random.IntN(2) == 0 {
				copy(cut[page*size:][:size], after[page*size:])
			}
		}
		interrupted := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(interrupted, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		db = open(t, interrupted)
		if is := values(t, db); !maps.Equal(is, was) {
			t.Errorf("after an interrupted transaction: %d values, want %d", len(is), len(was))
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOlderRoot puts an older root page where the current one is, as a disk does that loses a write. Its tree is
// complete, and only the number of the transaction shows that it is old.
func TestOlderRoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	put := func(content string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return boltfile.Put(tx, []byte("table"), []byte("key"), []byte(content)) }
	}
	db := open(t, path)
	var roots []uint64
	for _, content := range []string{"old", "new"} {
		if err := boltfile.Update(db, put(content)); err != nil {
			t.Fatal(err)
		}
		err := db.View(func(tx *bbolt.Tx) error {
			roots = append(roots, uint64(tx.Cursor().Bucket().RootPage()))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(os.Getpagesize())
	copy(text[roots[1]*size+8:][:size-8], text[roots[0]*size+8:]) // all but the page's id
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = boltfile.Open(path, options)
	damaged := new(boltfile.DamagedError)
	if !errors.As(err, &damaged) || !strings.Contains(err.Error(), "transaction") {
		t.Errorf("open: %v", err)
	}
}

// TestEmptyAndMissing: an empty file, and a file of which only the copy exists, are damaged. A file that does not
// exist is created, unless it shall only be read.
func TestEmptyAndMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	only := options
	only.ReadOnly = true
	if _, err := boltfile.Open(path, only); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a file that does not exist: %v", err)
	}
	db := open(t, path)
	if err := errors.Join(boltfile.Copy(db, options), db.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := boltfile.Open(path, options); !errors.Is(err, boltfile.ErrMissing) {
		t.Errorf("open a file of which only the copy exists: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := new(boltfile.DamagedError)
	if _, err := boltfile.Open(path, options); !errors.As(err, &damaged) {
		t.Errorf("open an empty file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("the empty file was changed: %v", err)
	}
}

// TestLinkToNothing: a symbolic link whose target is missing is an error, and no loop.
func TestLinkToNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.Symlink(filepath.Join(t.TempDir(), "missing"), path); err != nil {
		t.Fatal(err)
	}
	if _, err := boltfile.Open(path, options); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
}

// TestCopyIsNotReplacedByDamage damages the file while it is open. The copy stays as it was.
func TestCopyIsNotReplacedByDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db := open(t, path)
	defer db.Close()
	err := boltfile.Update(db, func(tx *bbolt.Tx) error {
		return boltfile.Put(tx, []byte("table"), []byte("key"), []byte("content"))
	})
	if err := errors.Join(err, boltfile.Copy(db, options)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(boltfile.CopyOf(path))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for page := 2 * os.Getpagesize(); page < len(text); page += os.Getpagesize() {
		if _, err := file.WriteAt(make([]byte, 64), int64(page)); err != nil {
			t.Fatal(err)
		}
	}
	if err := boltfile.Copy(db, options); err == nil {
		t.Error("a damaged file is copied")
	}
	if now, err := os.ReadFile(boltfile.CopyOf(path)); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the copy was replaced: %v", err)
	}
}
