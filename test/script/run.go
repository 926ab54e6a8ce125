package script

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Short replaces the rounds and duration of a documented laboratory run in the tests, so that the
// documentation can show useful values. test/e2e tests runs of several rounds.
const Short = "--rounds 1 --duration 20ms"

// Complete replaces them in `make lab`, whose figures must all exist: a figure needs one of the rounds.
// test/newmachine runs it with all workloads.
const Complete = "--rounds 3 --duration 20ms --workload tcp-rr,tcp-crr"

// serves is how many seconds a documented server must run: longer than a failing server needs to
// exit.
const serves = "3"

var (
	long     = regexp.MustCompile(`\s+--(rounds|duration)[= ]\S+`)
	onHost   = regexp.MustCompile(`^fairlead (attach|detach|publish|unpublish|ls|stats|events|network|service|exec|inspect|plan|apply|destroy|get|edit|bugreport|ports|doctor|explain|uninstall)\b`)
	makeLine = regexp.MustCompile(`^make [a-z-]+$`)
)

// saved is the command that makes ipvsadm print its rules.
const saved = "ipvsadm -S -n | "

// Runnable returns the command that the test runs for a documented command; root is the project's
// folder. Only make and fairlead are documented, so that users need to install nothing else:
//
//   - `fairlead lab run` runs with Short, `make lab` with Complete, and both write to the current folder;
//   - the other make targets are only resolved (make -n), because one of them
//     runs this test;
//   - a server under `fairlead run`, and a command that watches, must run until
//     its time is over;
//   - explain --probe has a timeout of half a minute, because the machine may be
//     busy;
//   - commands that change a host's networks, or serve there, run in the session's
//     room, which is a separate host;
//   - the output of ipvsadm is read from the session's file rules;
//   - every other fairlead command runs unchanged.
//
// A command with --fail-if, and plan, may exit with 1, which is a result and not a failure. The only
// round of a laboratory's workload may be discarded on a busy machine, but not all runs, unless the
// machine delayed the laboratory itself. A kernel
// without netem may refuse --netem, which test/vm tests.
func Runnable(command, root string) (string, error) {
	switch {
	case command == "make lab":
		return fmt.Sprintf(`make -C %s lab OUT="$PWD" LAB_FLAGS='%s'`, filepath.ToSlash(root), Complete), nil
	case makeLine.MatchString(command):
		return fmt.Sprintf("make -n -C %s %s", filepath.ToSlash(root), strings.TrimPrefix(command, "make ")), nil
	case strings.HasPrefix(command, "fairlead lab run"):
		run := long.ReplaceAllString(command, "")
		// The flags must precede a redirection or a pipe, which ends the command.
		at := len(run)
		if i := strings.IndexAny(unquoted(run), ">|;&"); i >= 0 {
			at = i
		}
		run = strings.TrimSpace(run[:at]) + " " + Short + strings.TrimRight(" "+run[at:], " ")
		if strings.Contains(command, "--fail-if") {
			return run + ` || test $? -eq 1`, nil
		}
		tolerated := `have no figure\|delayed: p99 lateness`
		if strings.Contains(command, "--netem") {
			tolerated += `\|load the module sch_netem`
		}
		return run + ` 2>notes || { cat notes; grep -q "` + tolerated + `" notes; }`, nil
	case strings.HasPrefix(command, "fairlead run "), strings.HasPrefix(command, "fairlead service watch"):
		return "timeout " + serves + " room " + command + " || test $? -eq 124", nil
	case strings.HasPrefix(command, saved):
		return "cat rules | room " + strings.TrimPrefix(command, saved), nil
	case strings.HasPrefix(command, "fairlead plan "):
		return "room " + command + " || test $? -eq 1", nil
	case strings.HasSuffix(command, " --probe"):
		return "room " + command + " --timeout 30s", nil
	case onHost.MatchString(command):
		return onHost.ReplaceAllString(command, "room $0"), nil
	case command == "fairlead" || strings.HasPrefix(command, "fairlead "):
		return command, nil
	}
	return "", fmt.Errorf("%q is neither make nor fairlead: describe it in the text or use another command", command)
}

// unquoted replaces quoted text with blanks, byte for byte.
func unquoted(command string) string {
	blank := []byte(command)
	var quote byte
	for i, c := range blank {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			blank[i] = ' '
		case c == '\'' || c == '"':
			quote = c
		}
	}
	return string(blank)
}
