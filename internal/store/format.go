package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/boltfile"

	"go.etcd.io/bbolt"
)

// format is the current version of the databases' contents. A database without a
// version has format 1.
const format = 4

// checkedFormat is the first format whose values have checksums.
const checkedFormat = 4

// keysOfFormat1 maps JSON keys of format 1 to those of format 2, in the values
// of the buckets modelBuckets.
var keysOfFormat1 = map[string]string{
	"answers": "sourceNAT", "handed": "hostInterface", "late": "needsRestart", "own": "private",
	"unlisted": "unpublished",
}

// Buckets of the applied state.
const (
	appliedNetworks  = "applied networks"
	appliedEndpoints = "applied endpoints"
	appliedPublishes = "applied publishes"
	appliedServices  = "applied services"
)

// bucketsOfFormat2 maps names of buckets in the formats 1 and 2 to those of format 3.
var bucketsOfFormat2 = map[string]string{
	"desired networks": appliedNetworks, "desired endpoints": appliedEndpoints,
	"desired publishes": appliedPublishes, "desired services": appliedServices,
}

// modelBuckets are the buckets with values of package model. A migration does not
// change other buckets, even if another version of the program wrote them.
var modelBuckets = []string{"networks", "services", "attachments", "publishes",
	appliedNetworks, appliedEndpoints, appliedPublishes, appliedServices}

// migrate rewrites the database in the current format, in one transaction. It writes
// nothing if the database already has that format.
func (d *database) migrate() error {
	var stored int
	err := d.db.View(func(tx *bbolt.Tx) (err error) {
		stored, err = boltfile.Format(tx)
		return err
	})
	if err == nil && stored < format {
		err = d.rewrite(stored)
	}
	if damaged := new(DamagedError); errors.As(err, &damaged) {
		return err
	}
	if err != nil {
		return fmt.Errorf("open store %s: %w", d.db.Path(), err)
	}
	return nil
}

// rewrite rewrites the database in the current format. stored is its old format. A value without a checksum that
// no table can read is damaged.
func (d *database) rewrite(stored int) error {
	return boltfile.Update(d.db, func(tx *bbolt.Tx) error {
		if err := renameBuckets(tx); err != nil {
			return err
		}
		err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return migrateBucket(string(name), b, stored) })
		for _, t := range d.tables {
			err = errors.Join(err, t.read(tx))
		}
		if err != nil {
			return &DamagedError{Path: d.db.Path(), Cause: &boltfile.DamagedError{Path: d.db.Path(), Cause: err}}
		}
		return boltfile.Protect(tx, format)
	})
}

// renameBuckets gives the buckets of older formats their current names.
func renameBuckets(tx *bbolt.Tx) error {
	for old, name := range bucketsOfFormat2 {
		from := tx.Bucket([]byte(old))
		if from == nil {
			continue
		}
		to, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		if err := errors.Join(from.ForEach(to.Put), tx.DeleteBucket([]byte(old))); err != nil {
			return err
		}
	}
	return nil
}

func migrateBucket(name string, b *bbolt.Bucket, stored int) error {
	if !slices.Contains(modelBuckets, name) {
		return nil
	}
	values := map[string][]byte{}
	err := b.ForEach(func(key, text []byte) (err error) {
		values[string(key)], err = upgrade(name, text, stored)
		return err
	})
	for key, text := range values {
		if err == nil {
			err = b.Put([]byte(key), text)
		}
	}
	return err
}

// upgrade converts a value of the bucket from the format stored to the current
// format. The values of format 2 are still the same.
func upgrade(bucket string, text []byte, stored int) ([]byte, error) {
	if stored >= 2 || !slices.Contains(modelBuckets, bucket) {
		return text, nil
	}
	var value any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("%s: %w", bucket, err)
	}
	return json.Marshal(renameKeys(value, keysOfFormat1))
}

// renameKeys renames the keys of objects at every depth.
func renameKeys(value any, names map[string]string) any {
	switch value := value.(type) {
	case map[string]any:
		renamed := make(map[string]any, len(value))
		for key, v := range value {
			if name, ok := names[key]; ok {
				key = name
			}
			renamed[key] = renameKeys(v, names)
		}
		return renamed
	case []any:
		for i := range value {
			value[i] = renameKeys(value[i], names)
		}
	}
	return value
}
