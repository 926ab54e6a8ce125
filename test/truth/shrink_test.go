package truth

import "slices"

// Shrink returns the shortest list of commands that it finds with which wrong still returns
// true. It leaves out halves, quarters and so on of the list (delta debugging), and calls
// wrong at most limit times.
func Shrink(commands []string, limit int, wrong func([]string) bool) []string {
	for size := (len(commands) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(commands) && limit > 0; {
			fewer := slices.Delete(slices.Clone(commands), at, min(at+size, len(commands)))
			limit--
			if wrong(fewer) {
				commands = fewer
			} else {
				at += size
			}
		}
	}
	return commands
}
