php insert.php
