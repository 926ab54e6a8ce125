package model

import "strings"

// Origin says who has made a wish. Users type commands, declare things in
// files, and ask other engines; each of these changes and removes what is its
// own, and nothing else.
type Origin string

// The origins. Files of a set that has a name are FileSet's.
const (
	// FromCommand is a command of ours, e.g. `fairlead attach`.
	FromCommand Origin = ""
	// FromFile is a set of files without a name, by `fairlead apply`.
	FromFile Origin = "file"
	// FromDocker is a Docker engine.
	FromDocker Origin = "docker"
)

// FileSet returns the origin of what the set of files of that name declares.
func FileSet(name string) Origin {
	if name == "" {
		return FromFile
	}
	return FromFile + ":" + Origin(name)
}

// IsFile reports whether the origin is a set of files.
func (o Origin) IsFile() bool {
	return o == FromFile || strings.HasPrefix(string(o), string(FromFile)+":")
}

// Set returns the name of the set of files, empty for the one without.
func (o Origin) Set() string {
	_, name, _ := strings.Cut(string(o), ":")
	return name
}
