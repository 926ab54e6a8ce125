package traefik

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// walk is what the directories of a FileSet have.
type walk struct {
	root  int
	files []filePath
	// found are the paths of the files.
	found map[string]bool
	// failures are the paths that cannot be read, and why.
	failures map[string]string
	// watch are the directories whose changes can change the files. seen are the directories that
	// were read, without symbolic links: links can resolve to one again.
	watch, seen map[string]bool
}

// filePath is a file below a path of the set.
type filePath struct {
	path string
	root int
}

// walk finds the files. Hidden directories, such as ..data of mounted Kubernetes volumes, do not
// count: their files have links beside them.
func (s *FileSet) walk() *walk {
	w := &walk{found: map[string]bool{}, failures: map[string]string{}, watch: map[string]bool{},
		seen: map[string]bool{}}
	for i, path := range s.paths {
		w.root = i
		w.add(path, true)
	}
	return w
}

// Directories returns the directories whose changes can change the files: those of the files, and
// of the symbolic links in their paths. They are without symbolic links.
func (s *FileSet) Directories() []string { return slices.Sorted(maps.Keys(s.walk().watch)) }

// add adds a file or a directory. Named means that it is a path of the set.
func (w *walk) add(path string, named bool) {
	hidden := !named && strings.HasPrefix(filepath.Base(path), ".")
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir() && hidden:
	case err == nil && info.IsDir():
		w.addDirectory(path)
	case named, err == nil && parserOf(path) != nil:
		w.watchPath(path)
		if err == nil {
			w.found[path] = true
			w.files = append(w.files, filePath{path, w.root})
		} else {
			w.failures[path] = "read the file: " + reason(err).Error()
		}
	case err != nil && !hidden && !isAbsent(path): // editors mark files with hidden links to nothing
		w.watchPath(path)
		w.failures[path] = "read the file: " + reason(err).Error()
	}
}

func (w *walk) addDirectory(path string) {
	w.watchPath(path)
	at, err := filepath.EvalSymlinks(path)
	if err == nil && w.seen[at] {
		return
	}
	w.seen[at] = true
	w.watch[at] = true
	entries, err := os.ReadDir(path)
	if err != nil {
		w.failures[path] = "read the directory: " + reason(err).Error()
		return
	}
	for _, e := range entries {
		w.add(filepath.Join(path, e.Name()), false)
	}
}

// failure returns which path keeps a file from being found, and why; "" if the directories were
// read without it.
func (w *walk) failure(path string) (at, text string) {
	for at = path; ; at = filepath.Dir(at) {
		if text := w.failures[at]; text != "" && !isAbsent(at) {
			return at, text
		}
		if at == filepath.Dir(at) {
			return "", ""
		}
	}
}

// isAbsent reports whether the directory of a path can be read and does not have it.
func isAbsent(path string) bool {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err := os.ReadDir(filepath.Dir(path))
	return err == nil
}

// mostLinks is how many symbolic links a path may have, as in Linux.
const mostLinks = 40

// watchPath watches the directories whose changes can change what a path resolves to: that of its last
// name, and those of the symbolic links on the way. In place of a directory that does not exist, it
// watches the one above.
func (w *walk) watchPath(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	at, names, links := "/", strings.Split(path, "/"), 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			w.watch[at] = true
			return
		case info.Mode()&fs.ModeSymlink == 0:
			if len(names) == 0 {
				w.watch[at] = true
			}
			at = next
			continue
		}
		w.watch[at] = true
		to, err := os.Readlink(next)
		if links++; err != nil || links > mostLinks {
			return
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		names = append(strings.Split(to, "/"), names...)
	}
}
