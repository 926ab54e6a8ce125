// Notice writes the file NOTICE: the modules that are linked into the binary,
// and Go's standard library, with the texts of their licences.
//
//	notice FILE
//
// It reads the licences from the packages' directories in the module cache. It fails if a module
// has no licence that it recognizes.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: notice FILE")
		os.Exit(2)
	}
	text, err := notice()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notice:", err)
		os.Exit(1)
	}
}
