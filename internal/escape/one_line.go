package escape

import "strings"

// OneLine returns the lines of a program's output as one line, separated by "; ", for an
// error. Error would write their line breaks as \n.
func OneLine(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
