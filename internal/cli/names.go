package cli

import "path/filepath"

// Arguments returns the arguments of a command line that begins with the program's name.
// As `traefik`, the program takes Traefik's flags, so that the commands of a stack work
// with the gateway's image.
func Arguments(line []string) []string {
	if len(line) > 0 && filepath.Base(line[0]) == "traefik" {
		return append([]string{"gateway", "traefik", "--"}, line[1:]...)
	}
	return line[min(1, len(line)):]
}
