package traefik

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// FileSet is the files at the paths of a file provider. Each file keeps its last good
// configuration. It is for one goroutine.
//
// Theory of operation. A file that cannot be read or parsed keeps the configuration that it
// had, with a problem that says since when. It is gone if the directory that had it, or that had
// its directory, was read without it for a time: editors and scripts remove a file before they
// make it again, or empty it before they fill it. So a file that has become empty counts as one
// that is not there. Another text is in use when two reads have found the same, because a
// program may still be writing.
type FileSet struct {
	paths []string
	files map[string]*file
	// begun means that the files have been read before. changed means that this read has changed
	// the configuration.
	begun, changed bool
	problems       []Problem
	// failures are the paths that cannot be read and have no configuration.
	failures map[string]failure
	// again is when the next read can differ although nothing changes; zero if never.
	again time.Time
}

const (
	// settleTime is how long a text must be the same before it is in use.
	settleTime = 100 * time.Millisecond
	// goneTime is how long a file must be missing or empty before its configuration ends.
	goneTime = 3 * time.Second
	// soonestRetry and latestRetry bound the time until a path is tried again that cannot be
	// read. It grows with the time since the first failure.
	soonestRetry, latestRetry = time.Second, time.Minute
)

// FilesRead is the result of FileSet.Read.
type FilesRead struct {
	Config   gateway.Config
	Problems []Problem
	// Changed means that the configuration or the problems differ from those of the last read.
	Changed bool
	// Again is the time after which another read can differ although nothing changes; 0 if none.
	Again time.Duration
}

// file is a file that has or had a configuration.
type file struct {
	// root is the index of the path that it belongs to.
	root int
	// part is the last good configuration, read at the time at from the text with this sum.
	part
	good bool
	at   time.Time
	sum  [sha256.Size]byte
	// next is the sum of the text that was found last, and first seen at nextAt.
	next   [sha256.Size]byte
	nextAt time.Time
	// missing is when the file was first not there; zero if it is there.
	missing time.Time
	failure failure
}

// failure is why something cannot be read; zero if it can.
type failure struct {
	text  string
	since time.Time
	// hidden means that it is not yet a problem.
	hidden bool
}

// set records a failure, which is the same as before if it has the same text.
func (f *failure) set(text string, now time.Time) {
	if f.text == "" {
		f.since = now
	}
	f.text = text
}

// String returns the failure with its age. Without a time there is none.
func (f failure) String() string {
	if f.since.IsZero() {
		return f.text
	}
	return fmt.Sprintf("%s (since %s)", f.text, Moment(f.since))
}

// Moment returns a time as reasons have it. An age would be another one in each reason.
func Moment(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// NewFileSet returns the files at these paths, each a file or a directory. It reads nothing.
func NewFileSet(paths ...string) *FileSet {
	return &FileSet{paths: paths, files: map[string]*file{}, failures: map[string]failure{}}
}

// Read reads the files. Now is the time of the read; zero means that failures have no age.
func (s *FileSet) Read(now time.Time) FilesRead {
	s.changed, s.again = !s.begun, time.Time{}
	w := s.walk()
	for _, at := range w.files {
		s.read(at.path, at.root, now)
	}
	for path, f := range s.files {
		if !w.found[path] {
			s.absent(path, f, w, now)
		}
	}
	s.fail(w.failures, now)
	s.begun = true
	return s.result(now)
}

// fail records the paths that cannot be read. One that is not there any more may be made again.
func (s *FileSet) fail(now map[string]string, at time.Time) {
	failures := map[string]failure{}
	for path, text := range now {
		f := s.failures[path]
		f.set(text, at)
		end := f.since.Add(goneTime)
		if f.hidden = s.begun && at.Before(end) && isAbsent(path); f.hidden {
			s.readAgain(end)
		}
		failures[path] = f
		s.retry(f, at)
	}
	s.failures = failures
}

func (s *FileSet) read(path string, root int, now time.Time) {
	f := s.files[path]
	if f == nil {
		f = &file{root: root}
		s.files[path] = f
	}
	text, err := readRegular(path)
	if errors.Is(err, fs.ErrNotExist) && isAbsent(path) { // it was there a moment ago
		s.readAgain(now.Add(settleTime))
		return
	}
	if err != nil {
		f.failure.set(err.Error(), now)
		s.retry(f.failure, now)
		return
	}
	f.missing = time.Time{}
	sum := sha256.Sum256(text)
	if f.good && sum == f.sum {
		f.next, f.failure = sum, failure{}
		return
	}
	if sum != f.next || f.nextAt.IsZero() {
		f.next, f.nextAt = sum, now
	}
	wait := settleTime
	if f.good && len(bytes.TrimSpace(text)) == 0 {
		wait = goneTime
	}
	if s.begun && now.Before(f.nextAt.Add(wait)) {
		s.readAgain(f.nextAt.Add(wait))
		return
	}
	var decoded part
	// A file whose decoding panics keeps what it had, as one that cannot be parsed.
	failed := recovery.Object(path, func() { decoded, err = decodeFile(path, text) })
	if err = cmp.Or(failed, err); err != nil {
		f.failure.set(err.Error(), now)
		return
	}
	f.part, f.good, f.at, f.sum, f.failure = decoded, true, now, sum, failure{}
	s.changed = true
}

// absent decides about a file that the directories do not have.
func (s *FileSet) absent(path string, f *file, w *walk, now time.Time) {
	if at, text := w.failure(path); text != "" {
		if at != path {
			text = at + ": " + text
		}
		if f.failure.set(text, now); f.good {
			delete(w.failures, at) // the file's problem has it
		}
		s.retry(f.failure, now)
		return
	}
	if f.missing.IsZero() {
		f.missing = now
	}
	if end := f.missing.Add(goneTime); f.good && now.Before(end) {
		s.readAgain(end)
		return
	}
	delete(s.files, path)
	s.changed = true
}

// retry reads again some time after a failure.
func (s *FileSet) retry(f failure, now time.Time) {
	s.readAgain(now.Add(min(max(now.Sub(f.since), soonestRetry), latestRetry)))
}

func (s *FileSet) readAgain(at time.Time) {
	if s.again.IsZero() || at.Before(s.again) {
		s.again = at
	}
}

// result merges the configurations of the files, in the order of their names.
func (s *FileSet) result(now time.Time) FilesRead {
	m := Merger{Remedy: "make both equal, or choose another name"}
	var problems []Problem
	for _, path := range s.sorted() {
		f := s.files[path]
		m.Add(path, f.config)
		problems = append(problems, f.found(path)...)
	}
	for _, path := range slices.Sorted(maps.Keys(s.failures)) {
		if f := s.failures[path]; !f.hidden {
			problems = append(problems, Problem{Source: path, Text: f.String()})
		}
	}
	problems = append(problems, m.Problems...)
	r := FilesRead{Config: m.Config, Problems: problems, Changed: s.changed || !slices.Equal(problems, s.problems)}
	if !s.again.IsZero() {
		r.Again = max(s.again.Sub(now), 1)
	}
	s.problems = problems
	return r
}

// sorted returns the paths of the files in the order of the paths of the set, and of their names.
func (s *FileSet) sorted() []string {
	return slices.SortedFunc(maps.Keys(s.files), func(a, b string) int {
		if d := s.files[a].root - s.files[b].root; d != 0 {
			return d
		}
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
}

func (f *file) found(path string) []Problem {
	switch {
	case f.failure.text == "":
		return f.problems
	case !f.good:
		return []Problem{{Source: path, Text: f.failure.String()}}
	}
	text := fmt.Sprintf("%v; its configuration of %s stays in use", f.failure, Moment(f.at))
	return slices.Concat(kept(path, text, &f.config), f.problems)
}
