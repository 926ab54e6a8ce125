package peer

import (
	"errors"

	"fairlead/internal/lab/dockerd"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

// Missing returns why the external program of a path cannot run on this host: it
// is not installed, or this binary cannot run in its containers. It returns "" if
// it can. The directory docker, if not empty, is searched first for a Docker
// engine's programs.
func Missing(p suite.Path, docker string) string {
	needs := Maker(p).Needs()
	for _, needed := range needs.Programs {
		if _, err := program.Find(needed.Name, docker); err != nil {
			if needed.Package == "" {
				return needed.Name + " is not installed: " + needed.Source
			}
			return needed.Name + " is not installed (Debian: " + needed.Package + ")"
		}
	}
	if needs.Static {
		return notStatic(ownBinary)
	}
	return ""
}

// Unavailable returns why a path cannot be built on this host: the reason of
// Missing, or a missing kernel feature. It returns "" if building can be tried.
func Unavailable(p suite.Path, facts plan.Facts, docker string) string {
	if why := Missing(p, docker); why != "" {
		return why
	}
	return rig.Unavailable(p, facts)
}

// ownBinary is the program that containers run, as a part of the laboratory.
const ownBinary = "/proc/self/exe"

// notStatic returns why the program cannot run in a container; "" if it can.
func notStatic(program string) string {
	err := dockerd.Static(program)
	if errors.Is(err, dockerd.ErrDynamic) {
		return "this fairlead is dynamically linked, and its containers have no libraries: " +
			"build it with make build, or with CGO_ENABLED=0"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
