// Package compat keeps what a release has promised (docs/guide/upgrading.md) as files in testdata, and its tests fail if
// the program drops it: a field of the JSON that commands print, a field of a stored format or of a record of a cluster,
// a key of fairlead.yaml, a metric, a label, a command or a flag. The package does not judge what values mean.
//
// Additions are written with
//
//	go test ./test/compat -release VERSION
//
// which never removes anything: the files are a union of all releases.
package compat
