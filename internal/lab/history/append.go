package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairlead/internal/jsonsum"
	"fairlead/internal/lab/result"

	"golang.org/x/sys/unix"
)

// lockWait is how long a writer or reader waits for another one.
const lockWait = 10 * time.Second

// Append adds a report to the file, which it creates if necessary. A line that is not an
// entry stays as it is. Returns [ErrRecorded] if the file has the report already.
func Append(file string, rep *result.Report) error {
	line, err := lineOf(rep)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	f, err := open(file, os.O_RDWR|os.O_CREATE, true)
	if err != nil {
		return err
	}
	defer f.Close()
	known, err := read(f, file)
	if known == nil && err != nil && !isLines(err) {
		return err
	}
	for _, e := range known {
		if e.Report.Started == rep.Started && e.Report.Seed == rep.Seed && e.Report.Suite == rep.Suite {
			return ErrRecorded
		}
	}
	return add(f, line)
}

// isLines reports whether an error is about lines of the file only.
func isLines(err error) bool {
	var line *LineError
	return errors.As(err, &line)
}

// lineOf returns a report's line.
func lineOf(rep *result.Report) ([]byte, error) {
	kept := *rep
	kept.Format, kept.Runs, kept.Steps, kept.Published = result.Format, nil, nil, nil
	line, err := json.Marshal(Entry{Schema: Schema, Report: kept})
	if err != nil {
		return nil, fmt.Errorf("write history: %w", err)
	}
	if _, err := parse(line); err != nil {
		return nil, fmt.Errorf("write history: the report cannot be an entry: %w", err)
	}
	if len(line) >= maxLine {
		return nil, fmt.Errorf("write history: the summary has %d bytes, want at most %d", len(line), maxLine)
	}
	return append(jsonsum.Add(line), " \n"...), nil
}

// add writes a line at the end of a locked file, and syncs it. An incomplete last line of
// another program is ended first. If writing fails, the file has its former content again.
func add(f *os.File, line []byte) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	size := info.Size()
	if size+int64(len(line)) > maxFile {
		return fmt.Errorf("write history: %s has %d bytes, want at most %d: move a part of its lines to another file",
			f.Name(), size, maxFile)
	}
	end := make([]byte, min(2, size)) // of the last line
	at := size - int64(len(end))
	if _, err := f.ReadAt(end, at); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	next := append(bytes.Clone(end), line...)
	switch {
	case string(end) == string(endOfFile)+"\n":
		next = append([]byte("\n"), line...)
	case size > 0 && !bytes.HasSuffix(end, []byte("\n")):
		next = append(append(bytes.Clone(end), '\n'), line...)
	}
	_, err = f.WriteAt(next, at)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_, undone := f.WriteAt(end, at)
		return fmt.Errorf("write history: %w", errors.Join(err, undone, f.Truncate(size)))
	}
	return nil
}

// open opens and locks a regular file, alone or with other readers.
func open(file string, flags int, alone bool) (*os.File, error) {
	// Without O_NONBLOCK, opening a pipe would wait for its other end.
	f, err := os.OpenFile(file, flags|unix.O_NONBLOCK, 0o644)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read history: %w: record the first session with `fairlead lab run --history`", err)
		}
		return nil, fmt.Errorf("open history: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", file)
	}
	if err == nil {
		err = lock(f, alone)
	}
	if err != nil {
		return nil, fmt.Errorf("open history: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// lock locks a file, which its Close unlocks.
func lock(f *os.File, alone bool) error {
	kind := unix.LOCK_SH
	if alone {
		kind = unix.LOCK_EX
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), kind|unix.LOCK_NB)
		if err == nil {
			return err
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			return fmt.Errorf("lock %s: %w: another program keeps it locked", f.Name(), err)
		}
	}
}
