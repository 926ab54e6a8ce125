// Package history keeps the summaries of laboratory sessions in a file, and finds out when a
// ratio changed. It does not measure or draw.
//
// # Theory of operation
//
// The file has one JSON object per line, and only grows: [Append] adds a line, and nothing
// changes or deletes one. An exclusive lock on the file keeps two writers apart, and a
// writer that fails takes its incomplete line back. If a line is not an entry, [Read] returns
// the other lines, and an error that names the line.
//
// Each line has a checksum (package jsonsum), so a line that is damaged and still JSON is not an
// entry. The last line ends with a space, which the next writer removes: if it is missing, lines
// have been lost at the end. Lines of versions before 2026-11-27 have neither.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"time"

	"fairlead/internal/jsonsum"
	"fairlead/internal/lab/result"
)

// Schema is the version of the lines that this version writes, and the newest that it reads.
const Schema = 1

// Limits of a file, so that reading it takes bounded memory.
const (
	maxLine   = 16 << 20
	maxFile   = 256 << 20
	maxErrors = 10
)

// Entry is one line: a report without its runs.
type Entry struct {
	Schema int           `json:"schema"`
	Report result.Report `json:"report"`

	// Time is when the session started.
	Time time.Time `json:"-"`
}

// ErrRecorded means that the file has the report already.
var ErrRecorded = errors.New("the history has this report already")

// DefaultFile returns the file in the user's directory for state (XDG Base Directory
// Specification).
func DefaultFile() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the specification ignores a relative path
		home, err := homeDir()
		if err != nil {
			return "", fmt.Errorf("find the history: %w: name a file", err)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "fairlead", "lab-history.jsonl"), nil
}

// homeDir returns the user's home directory. systemd starts services without $HOME.
func homeDir() (string, error) {
	dir, err := os.UserHomeDir()
	if err == nil {
		return dir, nil
	}
	if u, unknown := user.Current(); unknown == nil && u.HomeDir != "" {
		return u.HomeDir, nil
	}
	return "", err
}

// LineError is a line that is not an entry.
type LineError struct {
	File  string
	Line  int
	Cause error
}

// Error returns the file, the line and the cause.
func (e *LineError) Error() string {
	return fmt.Sprintf("read history: %s, line %d: %v", e.File, e.Line, e.Cause)
}

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Cause }

// Read returns the entries of a file in the order of their times. If lines are not entries,
// the error has a *[LineError] for each of the first ten, and the other entries are valid. If
// there is no file, the error is fs.ErrNotExist.
func Read(file string) ([]Entry, error) {
	f, err := open(file, os.O_RDONLY, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, file)
}

// read reads an open and locked file from its start.
func read(f *os.File, name string) ([]Entry, error) {
	if info, err := f.Stat(); err == nil && info.Size() > maxFile {
		return nil, fmt.Errorf("read history: %s has %d bytes, want at most %d: move a part of its lines to another file",
			name, info.Size(), maxFile)
	}
	var all []Entry
	var errs []error
	failed, last := 0, ofLine(nil)
	lines := bufio.NewReaderSize(io.LimitReader(f, maxFile), 1<<16)
	for n := 1; ; n++ {
		line, err := nextLine(lines)
		if errors.Is(err, io.EOF) {
			if err := last.check(); err != nil {
				errs = append(errs, &LineError{name, n, err})
			}
			break
		}
		if err != nil && !errors.Is(err, errLong) {
			return all, fmt.Errorf("read history: %s: %w", name, err)
		}
		var e Entry
		if last = ofLine(line); err == nil {
			e, err = parse(line)
		}
		if err == nil {
			all = append(all, e)
			continue
		}
		if failed++; failed <= maxErrors {
			errs = append(errs, &LineError{name, n, err})
		}
	}
	if failed > maxErrors {
		errs = append(errs, fmt.Errorf("read history: %s: %d more lines are not entries", name, failed-maxErrors))
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return all, errors.Join(errs...)
}

// endOfFile ends the last line.
var endOfFile = []byte(" ")

// lastLine is what the last line has. A file without lines has lost them.
type lastLine struct{ missing, summed, marked bool }

func ofLine(line []byte) lastLine {
	summed, _ := jsonsum.Check(bytes.TrimSuffix(line, endOfFile)) // parse reports the error
	return lastLine{line == nil, summed, bytes.HasSuffix(line, endOfFile)}
}

// check returns an error if lines are missing after the line.
func (l lastLine) check() error {
	if l.missing || l.summed && !l.marked {
		return errors.New("lines are missing at the end: restore the file from a backup, or record the next session to go on")
	}
	return nil
}

// errLong means that a line is longer than an entry may be.
var errLong = fmt.Errorf("the line is longer than %d MiB: delete it", maxLine>>20)

// nextLine returns the next line without its end, io.EOF after the last one, and errLong for
// a line that it has skipped.
func nextLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (long || len(line) > 0):
		case err != nil:
			return nil, err
		}
		if long {
			return nil, errLong
		}
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

// parse reads one line.
func parse(line []byte) (Entry, error) {
	if _, err := jsonsum.Check(bytes.TrimSuffix(line, endOfFile)); err != nil {
		return Entry{}, fmt.Errorf("not an entry of a history: %w: delete the line", err)
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return Entry{}, fmt.Errorf("not an entry of a history: %w: correct or delete the line", err)
	}
	switch {
	case head.Schema > Schema:
		return Entry{}, fmt.Errorf("schema %d, but this fairlead reads only up to %d: use a newer fairlead", head.Schema,
			Schema)
	case head.Schema < 1:
		return Entry{}, errors.New("not an entry of a history, because it has no schema: correct or delete the line")
	}
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, fmt.Errorf("not an entry of a history: %w: correct or delete the line", err)
	}
	var err error
	if e.Time, err = time.Parse(time.RFC3339, e.Report.Started); err != nil {
		return Entry{}, fmt.Errorf("not an entry of a history: %w: correct or delete the line", err)
	}
	if e.Report.Suite == "" {
		return Entry{}, errors.New("not an entry of a history, because it has no suite: correct or delete the line")
	}
	return e, nil
}
