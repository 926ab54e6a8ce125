package traefik

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fileSteps changes files and reads them at times of its own clock.
type fileSteps struct {
	t   *testing.T
	dir string
	set *FileSet
	now time.Time
	// last is the result of the last read.
	last FilesRead
}

func newFileSteps(t *testing.T, files map[string]string) *fileSteps {
	dir := writeFiles(t, files)
	return &fileSteps{t: t, dir: dir, set: NewFileSet(dir), now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
}

// siteOf returns a file with the router NAME.
func siteOf(name string) string {
	return fmt.Sprintf("http:\n  routers:\n    %s: {rule: Host(`%s.test`), service: s}\n", name, name)
}

func (s *fileSteps) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fileSteps) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *fileSteps) at(name string) string { return filepath.Join(s.dir, name) }

// read reads after a time.
func (s *fileSteps) read(after time.Duration) {
	s.now = s.now.Add(after)
	s.last = s.set.Read(s.now)
}

// want reads after a time and checks the routers and the problems of files.
func (s *fileSteps) want(after time.Duration, step, routers string, problems ...string) {
	s.t.Helper()
	s.read(after)
	got := strings.Join(slices.Sorted(maps.Keys(s.last.Config.HTTP.Routers)), " ")
	if got != routers {
		s.t.Errorf("%s: routers %q, want %q", step, got, routers)
	}
	if found := s.problems(""); !slices.Equal(found, problems) {
		s.t.Errorf("%s: problems\n%q, want\n%q", step, found, problems)
	}
}

// problems returns the problems of an object, or those of files.
func (s *fileSteps) problems(object string) (found []string) {
	for _, p := range s.last.Problems {
		if p.Object == object {
			found = append(found, strings.ReplaceAll(p.Source+": "+p.Text, s.dir+"/", ""))
		}
	}
	return found
}

const aAndB = "a@file b@file"

// TestFaultyFileKeepsItsRouters checks that a file that cannot be parsed or read keeps its routers, and
// that other files are read meanwhile.
func TestFaultyFileKeepsItsRouters(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *fileSteps)
		why   string
	}{
		"a tab": {func(s *fileSteps) { s.write("a.yml", "http:\n\trouters: {}\n") },
			"parse YAML: yaml: line 2: found character that cannot start any token"},
		"half of it": {func(s *fileSteps) { s.write("a.yml", siteOf("a")[:40]) },
			"parse YAML: yaml: line 2: did not find expected ',' or '}'"},
		"a faulty template": {func(s *fileSteps) { s.write("a.yml", "{{ nothing }}") },
			`parse the template: template: a.yml:1: function "nothing" not defined`},
		"a link to nothing": {func(s *fileSteps) {
			s.must(os.Remove(s.at("a.yml")))
			s.must(os.Symlink("none.yml", s.at("a.yml")))
		}, "read the file: no such file or directory"},
		"a pipe": {func(s *fileSteps) {
			s.must(os.Remove(s.at("a.yml")))
			s.must(syscall.Mkfifo(s.at("a.yml"), 0o644))
		}, "read the file: it is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFileSteps(t, map[string]string{"a.yml": siteOf("a"), "b.yml": siteOf("b")})
			s.want(0, "at the start", aAndB)
			c.spoil(s)
			s.read(time.Hour)
			began := s.now
			if s.read(time.Second); strings.HasPrefix(c.why, "parse") {
				began = s.now // the text may have been a part of the new one before
			}
			problem := fmt.Sprintf("a.yml: %s (since %s); its configuration of 2026-11-26 12:00:00 UTC stays in use",
				c.why, Moment(began))
			s.want(time.Second, "when it is faulty", aAndB, problem)
			if found := s.problems("router a@file"); !slices.Equal(found, []string{problem}) {
				t.Errorf("problems of the router: %q, want %q", found, problem)
			}
			s.want(time.Minute, "later", aAndB, problem)
			if s.last.Changed {
				t.Error("a problem that stays is a change")
			}
			s.must(os.Remove(s.at("a.yml")))
			s.write("a.yml", siteOf("c"))
			s.write("b.yml", siteOf("d"))
			s.read(time.Second)
			s.want(s.last.Again, "when it is repaired", "c@file d@file")
		})
	}
}

// TestUnreadableFile checks that a file that may not be read keeps its routers, and is read again soon,
// then less often.
func TestUnreadableFile(t *testing.T) {
	s := newFileSteps(t, map[string]string{"a.yml": siteOf("a"), "sub/b.yml": siteOf("b")})
	s.must(os.Chmod(filepath.Dir(s.dir), 0o755))
	s.must(os.Chmod(s.dir, 0o755))
	s.must(os.Chmod(s.at("a.yml"), 0o644))
	s.must(os.Chmod(s.at("sub/b.yml"), 0o644))
	asUser(t)
	s.want(0, "at the start", aAndB)
	asRoot(t)
	s.must(os.Chmod(s.at("a.yml"), 0))
	s.must(os.Chmod(s.at("sub"), 0))
	asUser(t)
	text := "permission denied (since 2026-11-26 13:00:00 UTC); its configuration of 2026-11-26 12:00:00 UTC stays in use"
	problems := []string{"a.yml: read the file: " + text, "sub/b.yml: sub: read the directory: " + text}
	s.want(time.Hour, "without the permission", aAndB, problems...)
	for _, again := range []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second} {
		if s.last.Again != again {
			t.Errorf("the next read after %v, want %v", s.last.Again, again)
		}
		s.want(s.last.Again, "later", aAndB, problems...)
	}
	s.want(time.Hour, "much later", aAndB, problems...)
	if s.last.Again != latestRetry {
		t.Errorf("the next read after %v, want %v", s.last.Again, latestRetry)
	}
	asRoot(t)
	s.must(os.Chmod(s.at("a.yml"), 0o644))
	s.must(os.Chmod(s.at("sub"), 0o755))
	asUser(t)
	s.want(time.Minute, "with the permission", aAndB)
}

// asUser lets the test's thread access files as a user without privileges, until asRoot or the end of
// the test. Without root it has no effect: the test is such a user.
func asUser(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	setUser(t, 65534)
	t.Cleanup(func() { asRoot(t) })
}

func asRoot(t *testing.T) { setUser(t, 0) }

func setUser(t *testing.T, id int) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	if _, err := unix.SetfsuidRetUid(id); err != nil {
		t.Fatal(err)
	}
	if now, err := unix.SetfsuidRetUid(-1); err != nil || now != id {
		t.Fatalf("the user of the thread is %d (%v), want %d", now, err, id)
	}
}

// TestFilesOfEditors checks the steps in which programs replace a file: its routers stay throughout.
func TestFilesOfEditors(t *testing.T) {
	next := siteOf("c")
	move := func(s *fileSteps, from, to string) { s.must(os.Rename(s.at(from), s.at(to))) }
	for name, steps := range map[string][]func(s *fileSteps){
		"vim, with a backup": {
			func(s *fileSteps) { s.write("4913", ""); s.must(os.Remove(s.at("4913"))) },
			func(s *fileSteps) { move(s, "a.yml", "a.yml~") },
			func(s *fileSteps) { s.write("a.yml", "") },
			func(s *fileSteps) { s.write("a.yml", next[:20]) },
			func(s *fileSteps) { s.write("a.yml", next) },
			func(s *fileSteps) { s.must(os.Remove(s.at("a.yml~"))) }},
		"nano": {func(s *fileSteps) { s.write("a.yml", "") }, func(s *fileSteps) { s.write("a.yml", next) }},
		"emacs": {func(s *fileSteps) { s.must(os.Symlink("user@host.1", s.at(".#a.yml"))) },
			func(s *fileSteps) { s.write("#a.yml#", next[:20]) },
			func(s *fileSteps) { move(s, "#a.yml#", "a.yml~"); s.write("a.yml", next) },
			func(s *fileSteps) { s.must(os.Remove(s.at(".#a.yml"))) }},
		"sed -i": {func(s *fileSteps) { s.write("sedX1", next[:20]) },
			func(s *fileSteps) { s.write("sedX1", next); move(s, "sedX1", "a.yml") }},
		"rsync": {func(s *fileSteps) { s.write(".a.yml.X1", next[:20]) },
			func(s *fileSteps) { s.write(".a.yml.X1", next); move(s, ".a.yml.X1", "a.yml") }},
		"rm": {func(s *fileSteps) { s.must(os.Remove(s.at("a.yml"))) },
			func(s *fileSteps) { s.write("a.yml", next) }},
		"in bits": {func(s *fileSteps) { s.write("a.yml", "http:\n") }, func(s *fileSteps) { s.write("a.yml", next) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFileSteps(t, map[string]string{"a.yml": siteOf("a"), "b.yml": siteOf("b")})
			s.want(0, "at the start", aAndB)
			for i, step := range steps {
				step(s)
				s.want(settleTime/2, fmt.Sprintf("after step %d", i+1), aAndB)
			}
			s.want(settleTime, "at the end", "b@file c@file")
		})
	}
}

// TestFilesThatEnd checks that the routers of a file that is gone, or empty, stay for a time only.
func TestFilesThatEnd(t *testing.T) {
	for name, end := range map[string]func(s *fileSteps){
		"gone":                func(s *fileSteps) { s.must(os.Remove(s.at("sub/a.yml"))) },
		"empty":               func(s *fileSteps) { s.write("sub/a.yml", "\n") },
		"another name":        func(s *fileSteps) { s.must(os.Rename(s.at("sub/a.yml"), s.at("a.conf"))) },
		"a gone directory":    func(s *fileSteps) { s.must(os.RemoveAll(s.at("sub"))) },
		"a renamed directory": func(s *fileSteps) { s.must(os.Rename(s.at("sub"), s.at(".sub"))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFileSteps(t, map[string]string{"sub/a.yml": siteOf("a"), "b.yml": siteOf("b")})
			s.want(0, "at the start", aAndB)
			end(s)
			s.want(time.Hour, "at once", aAndB)
			s.want(s.last.Again-1, "a moment before", aAndB)
			s.want(1, "when it is known", "b@file")
			if s.last.Again != 0 {
				t.Errorf("there is another read after %v", s.last.Again)
			}
		})
	}
}

// TestDirectoryIsMadeAgain checks that the routers of a directory that is removed and made again stay.
// While the directory above cannot be read, they stay, too.
func TestDirectoryIsMadeAgain(t *testing.T) {
	s := newFileSteps(t, map[string]string{"up/dir/a.yml": siteOf("a")})
	s.set = NewFileSet(s.at("up/dir"))
	s.want(0, "at the start", "a@file")
	s.must(os.RemoveAll(s.at("up/dir")))
	s.want(time.Hour, "when it is removed", "a@file")
	s.must(os.Mkdir(s.at("up/dir"), 0o755))
	s.want(settleTime, "when it is made again", "a@file")
	s.write("up/dir/a.yml", siteOf("c"))
	s.want(settleTime, "when it has a file again", "a@file")
	s.want(settleTime, "when that has settled", "c@file")
	s.must(os.RemoveAll(s.at("up")))
	s.read(time.Hour)
	s.want(time.Hour, "without the directory above", "c@file", "up/dir/a.yml: up/dir: read the file: no such file or "+
		"directory (since 2026-11-26 14:00:00 UTC); its configuration of 2026-11-26 13:00:00 UTC stays in use")
	s.must(os.Mkdir(s.at("up"), 0o755))
	s.read(time.Second)
	began := Moment(s.now)
	s.want(goneTime, "without the directory", "", "up/dir: read the file: no such file or directory (since "+began+")")
}

// TestLinkedDirectories checks that links to directories above end, and that each directory is read
// once.
func TestLinkedDirectories(t *testing.T) {
	s := newFileSteps(t, map[string]string{"a.yml": siteOf("a"), "sub/b.yml": siteOf("b")})
	for _, link := range []string{"sub/x", "sub/y", "z"} {
		s.must(os.Symlink(s.dir, s.at(link)))
	}
	s.want(0, "with links to itself", aAndB)
}
