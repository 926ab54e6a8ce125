package static

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
)

const configFileVariable = "TRAEFIK_CONFIGFILE"

// source is where the settings come from.
type source struct {
	root     *tree.Node
	mistakes []tree.Mistake
	notes    []Note
	// what names the source, for errors.
	what string
	// name returns a key as users write it there.
	name func(key string) string
}

// choose reads the one source that applies: the file, else the command line, else the
// environment.
func choose(args, env, files []string) (*source, error) {
	pairs, err := flags(args)
	if err != nil {
		return nil, err
	}
	file := lookup(env, configFileVariable)
	kept := pairs[:0]
	for _, p := range pairs {
		if strings.EqualFold(p.Key, "configFile") {
			file = p.Value
			continue
		}
		kept = append(kept, p)
	}
	variables, notes := variables(env)
	if file != "" {
		file = os.Expand(file, func(name string) string { return lookup(env, name) })
		files = append([]string{file}, files...)
	}
	if found := firstFile(files); found != "" {
		return readFile(found, len(kept), len(variables))
	}
	if file != "" {
		notes = append(notes, Note{file, "has no effect: there is no such file"})
	}
	s := &source{what: "the environment", name: variableName, notes: notes}
	if len(kept) > 0 {
		s.what, s.name = "the command line", func(key string) string { return "--" + key }
		if len(variables) > 0 {
			s.notes = append(s.notes, Note{envPrefix + "*",
				fmt.Sprintf("%d variables have no effect: the command line has flags", len(variables))})
		}
		variables = kept
	}
	s.root, s.mistakes = tree.FromPairs(variables)
	return s, nil
}

// readFile reads a static file in YAML or, if its name ends with .toml, in TOML.
func readFile(path string, flags, variables int) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the static configuration: %w", err)
	}
	s := &source{what: path, name: func(key string) string { return key }}
	if strings.EqualFold(filepath.Ext(path), ".toml") {
		s.root, err = tree.TOML(text)
	} else {
		s.root, err = tree.YAML(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	s.notes = removeUnknown(s.root)
	if flags+variables > 0 {
		s.notes = append(s.notes, Note{path,
			fmt.Sprintf("is in effect, so %d flags and %d variables have no effect", flags, variables)})
	}
	return s, nil
}

// removeUnknown takes the parts of a static file that Traefik does not know out of the
// tree: it ignores them there, as it does not in a command line.
func removeUnknown(root *tree.Node) (notes []Note) {
	var kept []*tree.Node
	for _, child := range root.Children {
		name := strings.ToLower(child.Name)
		switch {
		case settingType([]string{name}) != nil || isIgnoredRoot(name):
			kept = append(kept, child)
		case name == "http" || name == "tcp" || name == "udp" || name == "tls":
			notes = append(notes, Note{child.Name, "has no effect in the static file:" +
				" write it into a file that providers.file.filename names"})
		default:
			known := tree.FieldNames(reflect.TypeFor[allSettings]())
			notes = append(notes, Note{child.Name, "has no effect: " + tree.Unknown(child.Name, known)})
		}
	}
	root.Children = kept
	return notes
}

// defaultFiles returns the paths at which Traefik looks for a static file.
func defaultFiles(env []string) (paths []string) {
	dirs := []string{"/etc/traefik"}
	if dir := lookup(env, "XDG_CONFIG_HOME"); dir != "" {
		dirs = append(dirs, dir)
	}
	if home := lookup(env, "HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".config"))
	}
	for _, dir := range append(dirs, ".") {
		for _, ext := range []string{"toml", "yaml", "yml"} {
			paths = append(paths, filepath.Join(dir, "traefik."+ext))
		}
	}
	return paths
}

// firstFile returns the first path that is a file, or "".
func firstFile(paths []string) string {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	return ""
}
