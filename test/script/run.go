package script

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Short is what the tests put in place of a documented laboratory run's
// rounds and duration, so that the documentation may show runs worth making.
// What several rounds say is test/e2e's to show.
const Short = "--rounds 1 --duration 100ms"

// serves is how many seconds a documented server must run: longer than one
// takes to fail.
const serves = "3"

var (
	long     = regexp.MustCompile(`\s+--(rounds|duration)[= ]\S+`)
	onHost   = regexp.MustCompile(`^fairlead (attach|detach|publish|unpublish|ls|stats|events|network|service|exec|inspect|plan|apply|destroy|get|ports|doctor|explain)\b`)
	makeLine = regexp.MustCompile(`^make [a-z-]+$`)
)

// saved is the command that makes ipvsadm print its rules.
const saved = "ipvsadm -S -n | "

// Runnable turns a documented command into what the test runs for it, where
// root is the project's folder. Only make and fairlead are documented, so
// that nothing else needs to be installed to follow the documentation:
//
//   - `fairlead lab run` and `make lab` run for Short, into the current folder;
//   - the other make targets are only resolved (make -n): the test itself is
//     run by one of them;
//   - a server under `fairlead run`, and what watches, must run on until its time
//     is over;
//   - a packet that is sent to see its way has half a minute for it, on a machine
//     that is busy;
//   - what changes a host's networks, or serves there, runs in the session's room,
//     which is a host of its own;
//   - rules of ipvsadm are read from the session's file of that name;
//   - every other fairlead command runs as it stands.
//
// A command with --fail-if, and plan, may exit 1, which is the answer and no
// failure.
func Runnable(command, root string) (string, error) {
	switch {
	case command == "make lab":
		return fmt.Sprintf(`make -C %s lab OUT="$PWD" LAB_FLAGS='%s'`, filepath.ToSlash(root), Short), nil
	case makeLine.MatchString(command):
		return fmt.Sprintf("make -n -C %s %s", filepath.ToSlash(root), strings.TrimPrefix(command, "make ")), nil
	case strings.HasPrefix(command, "fairlead lab run"):
		run := long.ReplaceAllString(command, "")
		// Flags go before a redirection or a pipe, which end the command.
		at := len(run)
		if i := strings.IndexAny(unquoted(run), ">|;&"); i >= 0 {
			at = i
		}
		run = strings.TrimSpace(run[:at]) + " " + Short + strings.TrimRight(" "+run[at:], " ")
		if strings.Contains(command, "--fail-if") {
			run += ` || test $? -eq 1`
		}
		return run, nil
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

// unquoted blanks what stands in quotes, byte for byte.
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
