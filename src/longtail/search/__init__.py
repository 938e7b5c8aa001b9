"""Top-k over trees and over label vectors."""
