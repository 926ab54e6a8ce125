package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/store"
)

// damages returns how many damages a test makes per file. FAIRLEAD_DAMAGES replaces the short form.
func damages(t *testing.T, short int) int {
	t.Helper()
	n := short
	if text := os.Getenv("FAIRLEAD_DAMAGES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// large returns a state that needs more than one page per table.
func large() (store.Record, model.Desired) {
	r, d := record(), desired()
	for i := range 60 {
		e := model.Endpoint{Name: fmt.Sprintf("box%02d", i), Network: "lan",
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})}}
		p := model.Publish{Endpoint: e.Name, Proto: model.TCP, HostPorts: model.Port(uint16(8000 + i)),
			Ports: model.Port(80)}
		d.Attachments = append(d.Attachments,
			model.Attachment{Endpoint: e, Ref: "/run/netns/" + e.Name, Keep: i%2 == 0})
		d.Publishes = append(d.Publishes, p)
		r.Applied.Endpoints, r.Applied.Publishes = append(r.Applied.Endpoints, e), append(r.Applied.Publishes, p)
		r.Leases[e.Name] = e.Addresses
	}
	return r, d
}

// sorted is a state as the next process finds it.
type sorted struct {
	record  store.Record
	desired model.Desired
	notes   string
}

func load(t *testing.T, f *store.File) sorted {
	t.Helper()
	r, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Desired()
	if err != nil {
		t.Fatal(err)
	}
	return sorted{r, d, fmt.Sprintf("%s %s", f.Lasting().All(), f.Passing().All())}
}

// stored creates databases with many values and with free pages that have older values, and returns what the
// next process finds in them.
func stored(t *testing.T) (store.Places, sorted) {
	t.Helper()
	at := places(t)
	f := open(t, at)
	r, d := large()
	for i := range 3 {
		r.Settings[0].Value, d.Networks[0].Parent = fmt.Sprint(i), fmt.Sprint("old", i)
		for j := range d.Attachments {
			d.Attachments[j].Namespace = fmt.Sprint("cookie ", i)
		}
		if err := errors.Join(f.Save(r), f.SaveDesired(d), f.Lasting().Put(map[string]any{"a": i}),
			f.Passing().Put(map[string]any{"b": i})); err != nil {
			t.Fatal(err)
		}
	}
	f = reopen(t, f, at)
	is := load(t, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return at, is
}

// The page size of bbolt's files on this machine.
var pageSize = os.Getpagesize()

// damage returns a damaged copy of a file and describes the damage.
func damage(random *rand.Rand, sound []byte) ([]byte, string) {
	text := bytes.Clone(sound)
	pages := len(text) / pageSize
	switch random.IntN(7) {
	case 0:
		at, bit := random.IntN(len(text)), random.IntN(8)
		text[at] ^= 1 << bit
		return text, fmt.Sprintf("bit %d of byte %d", bit, at)
	case 1: // in the header of a page or in one of its first elements
		at, bit := random.IntN(pages)*pageSize+random.IntN(160), random.IntN(8)
		text[at] ^= 1 << bit
		return text, fmt.Sprintf("bit %d of byte %d", bit, at)
	case 2:
		page := random.IntN(pages)
		clear(text[page*pageSize:][:pageSize])
		return text, fmt.Sprintf("page %d zeroed", page)
	case 3:
		a, b := random.IntN(pages), random.IntN(pages)
		copy(text[a*pageSize:][:pageSize], sound[b*pageSize:])
		copy(text[b*pageSize:][:pageSize], sound[a*pageSize:])
		return text, fmt.Sprintf("pages %d and %d swapped", a, b)
	case 4:
		a, b := random.IntN(pages), random.IntN(pages)
		copy(text[a*pageSize:][:pageSize], sound[b*pageSize:])
		binary.NativeEndian.PutUint64(text[a*pageSize:], uint64(a)) // as if an older write of the page had remained
		return text, fmt.Sprintf("page %d is a copy of page %d", a, b)
	case 5:
		size := random.IntN(len(text))
		return text[:size], fmt.Sprintf("truncated to %d bytes", size)
	}
	at := random.IntN(len(text))
	n := min(1+random.IntN(64), len(text)-at)
	for i := range n {
		text[at+i] = byte(random.Uint32())
	}
	return text, fmt.Sprintf("%d random bytes at %d", n, at)
}

// copyFiles copies the files of databases.
func copyFiles(t *testing.T, from, to store.Places) {
	t.Helper()
	for _, dirs := range [][2]string{{from.State, to.State}, {from.Run, to.Run}} {
		if err := os.RemoveAll(dirs[1]); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dirs[1], os.DirFS(dirs[0])); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamages damages each file in random ways. Either the next process finds what was stored, or it refuses to
// start, changes nothing, and the files can be restored.
func TestDamages(t *testing.T) {
	from, want := stored(t)
	files := map[string]string{"fairlead.db": from.State, "boot.db": from.Run}
	for name, dir := range files {
		t.Run(name, func(t *testing.T) {
			sound, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, uint64(len(name))))
			at := places(t)
			refused := 0
			for range damages(t, 150) {
				text, what := damage(random, sound)
				copyFiles(t, from, at)
				path := filepath.Join(map[string]string{from.State: at.State, from.Run: at.Run}[dir], name)
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
				if refuses(t, at, path, what, want) {
					refused++
				}
			}
			if refused == 0 {
				t.Error("no damage was noticed")
			}
		})
	}
}

// refuses opens databases of which one is damaged, and reports whether they are refused.
func refuses(t *testing.T, at store.Places, path, what string, want sorted) bool {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, errRead := store.ReadDesired(at)
	f, err := store.OpenFile(at)
	if (err == nil) != (errRead == nil) {
		t.Errorf("%s: open: %v, read: %v", what, err, errRead)
	}
	if err == nil {
		if is := load(t, f); !reflect.DeepEqual(is, want) || !reflect.DeepEqual(read, want.desired) {
			t.Errorf("%s: lost: %+v", what, is)
		}
		writeAfter(t, f, at, what, want)
		return false
	}
	damaged := new(store.DamagedError)
	if !errors.As(err, &damaged) || damaged.Path != path || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "fairlead restore") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v", what, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("%s: the file was changed: %v", what, err)
	}
	all, err := store.Restore(at, false)
	if err != nil || len(all) != 2 {
		t.Fatalf("%s: restore: %+v, %v", what, all, err)
	}
	for _, r := range all {
		if kept, _ := os.ReadFile(r.Kept); r.Path == path && (r.Damage == "" || !bytes.Equal(kept, before)) ||
			r.Path != path && r.Damage != "" {
			t.Errorf("%s: restored: %+v", what, r)
		}
	}
	f = open(t, at)
	if is := load(t, f); !reflect.DeepEqual(is, want) {
		t.Errorf("%s: the copy has %+v", what, is)
	}
	if err := f.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return true
}

// writeAfter changes databases whose damage was not noticed. They must have what was written.
func writeAfter(t *testing.T, f *store.File, at store.Places, what string, was sorted) {
	t.Helper()
	changed := was.record.Clone()
	changed.Applied.Endpoints = changed.Applied.Endpoints[1:]
	changed.Settings[0].Before = "another value"
	if err := f.Save(changed); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	f = reopen(t, f, at)
	if is := load(t, f); !reflect.DeepEqual(is.record, changed) || !reflect.DeepEqual(is.desired, was.desired) {
		t.Errorf("%s: after a write: %+v", what, is)
	}
	if err := f.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
