package model

import "strings"

// Origin names who created a part of the desired state: a command, a set of files, a
// container engine or the cluster. Each origin can change and remove only its own parts.
type Origin string

// The origins. FileSet returns those of sets of files with a name.
const (
	// FromCommand is a Fairlead command, e.g. `fairlead attach`.
	FromCommand Origin = ""
	// FromFile is the set of files without a name (`fairlead apply`).
	FromFile Origin = "file"
	// FromDocker is a Docker engine.
	FromDocker Origin = "docker"
	// FromCluster is the cluster to which the host belongs. Its networks and services are
	// those of all its hosts.
	FromCluster Origin = "cluster"
)

// FileSet returns the origin of the set of files with this name.
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

// Set returns the name of the set of files; empty for the one without a name.
func (o Origin) Set() string {
	_, name, _ := strings.Cut(string(o), ":")
	return name
}
