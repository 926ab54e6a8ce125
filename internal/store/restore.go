package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fairlead/internal/boltfile"
)

// Restored describes what Restore has found and done about a database.
type Restored struct {
	Path string
	// Damage is empty if the database is not damaged; nothing is restored then.
	Damage string `json:",omitempty"`
	// Copied is when the copy was written.
	Copied time.Time `json:",omitzero"`
	// Kept is the path of the damaged database now. It is empty if there was none.
	Kept string `json:",omitempty"`
	// Differences are what the copy has otherwise than the damaged database.
	Differences []Difference `json:",omitempty"`
}

// Difference is a value that differs between a damaged database and its copy.
type Difference struct {
	Table, Key string
	Change     Change
}

// Change is what restoring a copy does to a value.
type Change string

// The changes.
const (
	// Returns means that the damaged database does not have the value, or that it cannot be read there.
	Returns Change = "returns"
	// Reverts means that the copy has an older value.
	Reverts Change = "reverts"
	// Vanishes means that the value is newer than the copy.
	Vanishes Change = "vanishes"
)

// Restore replaces each damaged database by its copy, and keeps the damaged one under another name. If
// dryRun is set, it changes nothing. It returns a *InUseError if a process has a database open.
func Restore(at Places, dryRun bool) ([]Restored, error) {
	var all []Restored
	for _, path := range []string{filepath.Join(at.State, lastingName), filepath.Join(at.Run, bootName)} {
		r, err := restore(path, filepath.Join(at.Run, "pid"), dryRun)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("restore store: no daemon has stored anything in %s and %s: name its directories with "+
			"--state-dir and --run-dir", at.State, at.Run)
	}
	return all, nil
}

func restore(path, pid string, dryRun bool) (Restored, error) {
	opt := boltfile.Options{Format: Format, Wait: lockTimeout, ReadOnly: dryRun}
	r := Restored{Path: path}
	damage, values, unlock, err := inspect(path, opt)
	if errors.Is(err, boltfile.ErrInUse) {
		holder, _ := os.ReadFile(pid) // it may have ended just now
		return r, &InUseError{Path: path, PID: string(holder)}
	}
	if err != nil {
		return r, err
	}
	defer unlock()
	if damage == nil {
		return r, nil
	}
	r.Damage = damage.Error()
	copied, err := copyValues(path, opt)
	if err != nil {
		return r, fmt.Errorf("restore store %s: %w: it has no copy that can be read: restore a backup of the file, or "+
			"move it to start with an empty store", path, err)
	}
	r.Copied, r.Differences = copied.written, differences(values, copied.values)
	if dryRun {
		return r, nil
	}
	if values != nil {
		r.Kept = path + ".damaged-" + time.Now().UTC().Format("20060102-150405.000")
	}
	if err := boltfile.Restore(path, r.Kept); err != nil {
		return r, fmt.Errorf("restore store %s: %w", path, err)
	}
	return r, nil
}

// inspect locks a database. If it is damaged, it returns the damage, and the values that can be read. They are
// nil if there is no file.
func inspect(path string, opt boltfile.Options) (damage error, values map[boltfile.Value][]byte, unlock func(),
	err error) {
	file, err := boltfile.Lock(path, opt)
	if _, failed := os.Stat(boltfile.CopyOf(path)); errors.Is(err, fs.ErrNotExist) && failed == nil {
		return &boltfile.DamagedError{Path: path, Cause: boltfile.ErrMissing}, nil, func() {}, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	unlock = func() { file.Close() } // reading has no late errors
	if _, err := boltfile.Read(file, opt); err != nil {
		if another := new(boltfile.FormatError); errors.As(err, &another) {
			unlock()
			return nil, nil, nil, fmt.Errorf("restore store %s: %w", path, err)
		}
		return &boltfile.DamagedError{Path: path, Cause: err}, boltfile.Values(file), unlock, nil
	}
	return nil, nil, unlock, nil
}

// copied is the content of a copy.
type copied struct {
	written time.Time
	values  map[boltfile.Value][]byte
}

func copyValues(path string, opt boltfile.Options) (c copied, err error) {
	file, err := os.Open(boltfile.CopyOf(path))
	if err != nil {
		return c, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return c, err
	}
	if _, err := boltfile.Read(file, opt); err != nil {
		return c, &boltfile.DamagedError{Path: file.Name(), Cause: err}
	}
	return copied{info.ModTime(), boltfile.Values(file)}, nil
}

// differences returns what changes if the copy replaces the damaged values, sorted by table and key.
func differences(damaged, copied map[boltfile.Value][]byte) []Difference {
	changes := map[boltfile.Value]Change{}
	for at := range damaged {
		if _, present := copied[at]; !present {
			changes[at] = Vanishes
		}
	}
	for at, content := range copied {
		switch is, present := damaged[at]; {
		case !present:
			changes[at] = Returns
		case string(is) != string(content):
			changes[at] = Reverts
		}
	}
	order := func(a, b boltfile.Value) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key)) }
	var all []Difference
	for _, at := range slices.SortedFunc(maps.Keys(changes), order) {
		all = append(all, Difference{at.Table, at.Key, changes[at]})
	}
	return all
}
